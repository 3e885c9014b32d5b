"""Runs end with the interpreter, and survive a fork."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - registers at the interpreter's end what must come after ours
import multiprocessing.util
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from torchrl_trackio.errors import warn_in_background

if TYPE_CHECKING:
    from torchrl_trackio.handle import RunHandle

_END_SECONDS = 30.0  # the longest that the interpreter's end waits for all runs together

live: set[RunHandle] = set()  # until finished: nothing else keeps the last rows of a logger that was dropped
_releases: list[Callable[[], None]] = []
_finalized: set[int] = set()  # processes that finish their runs by multiprocessing


def add(run: RunHandle) -> None:
    """Have a run finished by the end of this process at the latest."""
    live.add(run)
    if multiprocessing.parent_process() is not None and os.getpid() not in _finalized:
        # A child of multiprocessing may end without atexit.
        _finalized.add(os.getpid())
        multiprocessing.util.Finalize(None, finish_all, exitpriority=100)


def finish_all() -> None:
    """Finish every live run; for their store, all of them together are waited for 30 s at most."""
    until = time.monotonic() + _END_SECONDS
    for run in list(live):
        try:
            run.end(max(until - time.monotonic(), 0.1))
        except Exception as error:  # noqa: BLE001 - the other runs have to be finished all the same
            warn_in_background(f"{run!r} could not be finished: {type(error).__name__}: {error}")


def _show_progress() -> None:
    for run in list(live):
        run.show_progress()


def _before_fork() -> None:
    for run in list(live):
        _releases.extend(run.hold())


def _after_fork() -> None:
    for release in _releases:
        release()
    _releases.clear()


def _after_fork_in_child() -> None:
    _after_fork()
    for run in live:
        run.leave_behind()
    live.clear()


atexit.register(finish_all)
with suppress(AttributeError, RuntimeError):
    # The interpreter waits for the videos' executor before atexit, and what shows that has to begin before it does.
    threading._register_atexit(_show_progress)  # type: ignore[attr-defined]
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
