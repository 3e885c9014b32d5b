"""The versions that this package is tested with."""

from __future__ import annotations

import functools
import re
from importlib.metadata import version

from torchrl_trackio.errors import warn

# Oldest and newest; None for no newest. CI, pyproject.toml and the README's table say the same.
_TESTED: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "Python": ((3, 10), (3, 13)),
    "torchrl": ((0, 10), (0, 14)),
    "trackio": ((0, 42), (0, 43)),
    "av": ((13,), None),
    "wrapt": ((1, 16), None),
}


@functools.cache
def warn_of_untested_versions() -> None:
    """Warn, once, of a version that is older or newer than what was tested; it may work all the same."""
    for name in ("torchrl", "trackio"):
        if problem := untested(name, version(name)):
            warn(problem)


def untested(name: str, installed: str) -> str:
    """What to say of a version that was not tested; nothing of all others."""
    oldest, newest = _TESTED.get(name, ((0,), None))
    if release(installed) >= oldest and (newest is None or release(installed) <= newest):
        return ""
    span = ".".join(map(str, oldest)) + (" and later" if newest is None else " to " + ".".join(map(str, newest)))
    return f"torchrl-trackio is tested with {name} {span}, and {installed} is installed: is there a newer one?"


def release(installed: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", installed)[:2]))
