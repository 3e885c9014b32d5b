"""The row buffer: everything logged for one step becomes one row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.values import to_step

_OPEN_SECONDS = 1.0  # the longest that a row stays open for more values of its step
_PAUSE_SECONDS = 0.1  # between two looks of the background thread
_MOST_ROWS = 2000  # closed rows that wait before the caller has to write them itself
_MOST_BYTES = 64 * 2**20  # of values still to be counted, likewise

FINISHED = (
    "this run is finished and takes no more values: log before close(), or make a new logger, with resume='must' for it"
)

Write = Callable[[int, dict[str, Any]], None]


class RowBuffer:
    """Merges the values of a step into one row and hands closed rows to ``write`` in a background thread.

    The open row closes when another step is logged, when one of its names comes again, on :meth:`drain`, and one second
    after it was opened. When rows come faster than they can be written, :meth:`add` writes some itself: a caller waits
    rather than memory growing or rows being dropped.

    Args:
        write: takes the step and values of a closed row, in the order of logging, with :attr:`writing` held. Must not
            raise.
        last_step: the last step of a metric that this buffer has not seen yet, -1 for none. Must not raise.

    Attributes:
        last_steps: the last step of each metric; put those in that the buffer goes on with.
        largest_step: the largest step so far; -1 before the first one.
        writing: held by whoever writes.
    """

    def __init__(self, write: Write, last_step: Callable[[str], int]) -> None:
        self.last_steps: dict[str, int] = {}
        self.largest_step = -1
        self._write = write
        self._last_step = last_step
        self._lock = threading.Lock()  # guards the fields below; held for microseconds
        self._open: dict[str, Any] = {}
        self._open_step = 0
        self._open_until = 0.0
        self._closed: list[tuple[int, dict[str, Any]]] = []
        self._closed_bytes = 0
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()  # there is something to write, now or once the open row is closed
        self._hurry = threading.Event()  # and no time to wait for more
        self._stopped = False
        self._used = False
        self.writing = threading.Lock()

    def add(self, values: dict[str, Any], step: int | None) -> None:
        """Put ``values`` into the row of ``step``; ``None`` continues the names' own count.

        Raises:
            RuntimeError: after :meth:`stop`.
            ValueError: if the count has come to its end.
        """
        if step is None:
            self._look_up(values)
        with self._lock:
            step = self._counted(values, step)
            if self._open and (step != self._open_step or not self._open.keys().isdisjoint(values)):
                self._close()
            if not self._open:
                self._open_step, self._open_until = step, time.monotonic() + _OPEN_SECONDS
                if not self._wake.is_set():
                    self._wake.set()
                    if self._thread is None:
                        self._start()
            self._open.update(values)
            full = len(self._closed) >= _MOST_ROWS or self._closed_bytes >= _MOST_BYTES
        if full:
            self.drain(everything=False)

    def count(self, names: Iterable[str], step: int | None) -> int:
        """The step of values before they are added, or stored past this buffer; ``None`` continues their own count.

        Raises:
            RuntimeError: after :meth:`stop`.
        """
        if step is None:
            self._look_up(names)
        with self._lock:
            return self._counted(names, step)

    def use(self) -> None:
        """Count as used by what is stored past this buffer and at no step.

        Raises:
            RuntimeError: after :meth:`stop`.
        """
        self.check()
        self._used = True

    def check(self) -> None:
        """Raise a ``RuntimeError`` after :meth:`stop`."""
        if self._stopped:
            raise RuntimeError(FINISHED)

    @property
    def waiting(self) -> int:
        """How many closed rows are not written yet."""
        return len(self._closed)

    @property
    def used(self) -> bool:
        """Whether anything has been logged."""
        return self._used

    def drain(self, *, everything: bool = True, timeout: float = -1) -> bool:
        """Write closed rows out, and with ``everything`` the open one too.

        Returns:
            Whether that was possible within ``timeout`` seconds.
        """
        if not self.writing.acquire(timeout=timeout):
            return False
        try:
            with self._lock:
                if self._open and (everything or time.monotonic() >= self._open_until):
                    self._close()
                rows, self._closed, self._closed_bytes = self._closed, [], 0
                self._hurry.clear()
                if not self._open:
                    self._wake.clear()
            for step, values in rows:
                self._write(step, values)
        finally:
            self.writing.release()
        return True

    def stop(self) -> None:
        """Refuse further values, write what there is, and end the thread."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self.drain()
        self._wake.set()
        self._hurry.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def hold(self, timeout: float) -> list[Callable[[], None]]:
        """Keep every other thread out, for a fork; returns what lets them in again."""
        return [lock.release for lock in (self.writing, self._lock) if lock.acquire(timeout=timeout)]

    def _look_up(self, names: Iterable[str]) -> None:
        """Before the lock is taken: for a run that is continued, this asks the store."""
        for name in names:
            if name not in self.last_steps:
                self.last_steps.setdefault(name, self._last_step(name))

    def _counted(self, names: Iterable[str], step: int | None) -> int:
        self.check()
        last_steps = self.last_steps
        if step is None:
            step = to_step(1 + max(last_steps[name] for name in names))  # which there may be none of
        for name in names:
            last_steps[name] = step
        if step > self.largest_step:
            self.largest_step = step
        self._used = True
        return step

    def _close(self) -> None:
        self._closed.append((self._open_step, self._open))
        size = sum(v.nbytes for v in self._open.values() if type(v) is PendingHistogram)
        self._open = {}
        if size:
            self._closed_bytes += size
            self._hurry.set()  # memory that is freed at once is what the next histogram is copied to

    def _start(self) -> None:
        try:
            self._thread = threading.Thread(target=self._run, name="torchrl-trackio rows", daemon=True)
            self._thread.start()
        except RuntimeError:  # at the interpreter's end, or with no threads left: flush and finish write the rows
            self._thread = None

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait()
            self._hurry.wait(_PAUSE_SECONDS)
            self.drain(everything=False)
