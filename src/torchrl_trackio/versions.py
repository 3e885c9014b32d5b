"""The versions of torchrl and Trackio that this package is tested with."""

from __future__ import annotations

import functools
import re
from importlib.metadata import version

from torchrl_trackio.errors import warn

_TESTED = {"torchrl": ((0, 10), (0, 14)), "trackio": ((0, 42), (0, 43))}  # CI and the README's table say the same


@functools.cache
def warn_of_untested_versions() -> None:
    """Warn, once, of a version that is older or newer than what was tested; it may work all the same."""
    for name, (oldest, newest) in _TESTED.items():
        installed = version(name)
        if not oldest <= tuple(map(int, re.findall(r"\d+", installed)[:2])) <= newest:
            span = " to ".join(".".join(map(str, bound)) for bound in (oldest, newest))
            warn(f"torchrl-trackio is tested with {name} {span}, and {installed} is installed: is there a newer one?")
