"""Construction never waits for the Hugging Face hub."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import huggingface_hub
from huggingface_hub import constants

_PATIENCE_SECONDS = 1.0

_asking: threading.Thread | None = None
_one_at_a_time = threading.RLock()


@contextmanager
def bounded_hub() -> Iterator[None]:
    """Within this block, Trackio does not wait for a hub that does not answer.

    A local run asks the hub for the user's name when a token is set, with no timeout. So it is asked before, in the
    background: an answer is cached by ``huggingface_hub``; without one, the hub counts as offline within the block.
    """
    with _one_at_a_time:
        if constants.HF_HUB_OFFLINE or huggingface_hub.get_token() is None or _answers():
            yield
            return
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = False


def _answers() -> bool:
    global _asking
    if _asking is None or not _asking.is_alive():
        _asking = threading.Thread(target=_ask, name="torchrl-trackio whoami", daemon=True)
        _asking.start()
        _asking.join(_PATIENCE_SECONDS)
    return not _asking.is_alive()


def _ask() -> None:
    with suppress(Exception):  # a refusal is an answer, too: Trackio does without the name
        huggingface_hub.whoami(cache=True)
