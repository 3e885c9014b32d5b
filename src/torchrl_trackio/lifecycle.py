"""Runs end with the interpreter, and survive a fork."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchrl_trackio.experiment import TrackioRun

_END_SECONDS = 30.0  # the longest that the interpreter's end waits for all runs together

live: set[TrackioRun] = set()  # until finished: nothing else keeps the last rows of a logger that was dropped
_releases: list[Callable[[], None]] = []


def finish_all() -> None:
    """Finish every live run, within 30 s in all."""
    until = time.monotonic() + _END_SECONDS
    for run in list(live):
        run.finish(max(until - time.monotonic(), 0.1))


def finish_in_forked_child() -> None:
    """Have the runs of this process finished when it ends as a child of ``multiprocessing``, which skips ``atexit``."""
    multiprocessing.util.Finalize(None, finish_all, exitpriority=100)


def _before_fork() -> None:
    for run in live:
        _releases.extend(run.hold())


def _after_fork_in_parent() -> None:
    for release in _releases:
        release()
    _releases.clear()


def _after_fork_in_child() -> None:
    _releases.clear()
    for run in live:
        run.leave_behind()
    live.clear()


atexit.register(finish_all)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
