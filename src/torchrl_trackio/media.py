"""The media queue: videos are encoded one after another in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

_MOST_WAITING = 4


class MediaQueue:
    """Runs jobs in one background thread, in order; at most four wait, then :meth:`put` does.

    Jobs must not raise. An executor's threads are joined when the interpreter ends, before ``atexit``: no job is lost.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._slots = threading.Semaphore(_MOST_WAITING + 1)  # and one that is worked on
        self._jobs: set[Future[None]] = set()

    def put(self, job: Callable[[], None]) -> None:
        """Run ``job`` soon; at once and in this thread when the interpreter is shutting down."""
        with self._starting:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "torchrl-trackio media")
        self._slots.acquire()
        try:
            future = self._executor.submit(job)
        except RuntimeError:
            self._slots.release()
            job()
            return
        self._jobs.add(future)
        future.add_done_callback(self._done)

    @property
    def waiting(self) -> int:
        """How many jobs are not done yet."""
        return len(self._jobs)

    def flush(self, until: float) -> bool:
        """Wait until every job put so far is done, or ``time.monotonic()`` is at ``until``; tell whether they are."""
        return not wait(set(self._jobs), max(until - time.monotonic(), 0)).not_done

    def stop(self) -> None:
        """Finish every job and end the thread."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)

    def _done(self, future: Future[None]) -> None:
        self._jobs.discard(future)
        self._slots.release()
