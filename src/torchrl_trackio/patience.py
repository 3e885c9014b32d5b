"""Work with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable


def within(seconds: float, work: Callable[[], bool | None]) -> bool:
    """Whether ``work`` was done in that time, and did not return ``False``.

    What takes longer goes on in a thread of its own, which the interpreter's end waits for.
    """
    returned: list[bool | None] = []
    thread = threading.Thread(target=lambda: returned.append(work()), name="torchrl-trackio patience", daemon=False)
    try:
        thread.start()
    except RuntimeError:  # at the interpreter's end, or with no threads left
        return work() is not False
    thread.join(max(seconds, 0))
    return returned in ([True], [None])
