"""What Trackio prints, kept from those runs that ask for it."""

from __future__ import annotations

import builtins
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PRINTING = ("trackio", "trackio.run", "trackio.utils", "trackio.deploy")

_thread = threading.local()


@contextmanager
def hushed(quiet: bool, *, lines: str = "") -> Iterator[None]:
    """Within this block, and this thread, Trackio prints no ``lines`` that begin so if ``quiet``.

    Redirecting ``sys.stdout`` would swallow what other threads print meanwhile.
    """
    if not quiet:
        yield
        return
    for module in map(importlib.import_module, _PRINTING):
        vars(module)["print"] = _print
    before, _thread.unsaid = getattr(_thread, "unsaid", ()), (lines,)
    try:
        yield
    finally:
        _thread.unsaid = before


def _print(*values: Any, **options: Any) -> None:
    if not str(next(iter(values), "")).startswith(getattr(_thread, "unsaid", ())):
        builtins.print(*values, **options)  # noqa: T201 - Trackio's own
