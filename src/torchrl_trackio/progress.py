"""Long work shows itself: what is left to store while a run ends."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from tqdm import tqdm

_PATIENCE_SECONDS = 0.3  # a shorter wait shows nothing
_PAUSE_SECONDS = 0.1
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class Progress:
    """A bar on a terminal, one plain line elsewhere, on standard error, for as long as something is waited for.

    Args:
        name: the run's name.
        left: how many videos, and how many rows, are not stored yet. Must not raise.
    """

    def __init__(self, name: str, left: Callable[[], tuple[int, int]]) -> None:
        self._name = name
        self._left = left
        self._begun = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """Be ready for the interpreter's end, at which no thread can be started any more."""
        if self._thread is None:
            thread = threading.Thread(target=self._show, name="torchrl-trackio progress", daemon=True)
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def start(self) -> None:
        """Begin to watch, once."""
        if not self._begun.is_set():
            self.arm()
            self._begun.set()
            if self._thread is None:
                self._say(*self._left())

    def stop(self) -> None:
        """Take the bar away."""
        self._done.set()
        self._begun.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        self._begun.wait()
        if self._done.wait(_PATIENCE_SECONDS) or not any(self._left()):
            return
        if sys.stderr.isatty():
            self._draw(sum(self._left()))
        else:
            self._say(*self._left())

    def _draw(self, total: int) -> None:
        columns, lines = shutil.get_terminal_size()  # tqdm draws nothing where the terminal does not say
        size = {"ncols": columns, "nrows": lines}
        with tqdm(total=total, desc=f"storing run {self._name}", leave=False, bar_format=_BAR, **size) as bar:
            while not self._done.wait(_PAUSE_SECONDS):
                videos, rows = self._left()
                bar.total = max(bar.total, videos + rows)
                bar.n = bar.total - videos - rows
                bar.set_postfix(videos=videos, rows=rows)

    def _say(self, videos: int, rows: int) -> None:
        counts = [f"{count} {what}" for count, what in ((videos, "video(s)"), (rows, "row(s)")) if count]
        if counts:
            sys.stderr.write(f"torchrl-trackio: storing {' and '.join(counts)} of run {self._name!r}...\n")
