"""Conversations and episodes as Trackio traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trackio
from tensordict import TensorDictBase

from torchrl_trackio.arrays import describe
from torchrl_trackio.conversations import chat_traces, conversations, find_chat, history_types, to_messages, with_media
from torchrl_trackio.episodes import episode_traces

_ACCEPTED = (
    "log_trace takes a conversation (torchrl's History or ChatHistory, a list of messages, a tensordict that holds one "
    "of these), a rollout tensordict, a trackio.Trace, or a list of these"
)


def to_traces(trace: Any, metadata: Mapping[str, Any] | None = None) -> list[trackio.Trace]:
    """Traces of conversations or episodes, of plain Python all through.

    Args:
        trace: one or several of:

            - a conversation: torchrl's ``History`` (batch ``[]``: one message; ``[..., T]``: a trace for each ``[T]``),
              its ``ChatHistory`` (``full``, or else prompt and response), or a list of message dicts. Placeholders of
              the role ``"<none>"`` are left out, answers of tools are paired with their calls.
            - a tensordict that holds a ``History`` or ``ChatHistory`` under any key. Its rewards, other numbers and
              texts become metadata. Where, along the last dimension, each conversation continues the one before, as
              in a rollout of several turns, they are one trace with a list of rewards.
            - a rollout tensordict, batch ``[..., T]``: a trace for each episode, with one span for each step. 500
              steps are written out, and values of up to 16 numbers.
            - a :class:`trackio.Trace`.
        metadata: what is added to the metadata of each trace, and wins over what is there.

    Raises:
        TypeError: for anything else.
        ValueError: if there is nothing to store: an empty list, a message without a role, a tensordict with neither a
            conversation nor a reward or an action.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"a trace's metadata is a mapping, got {describe(metadata)}")
    added = with_media(metadata or {})
    return [trackio.Trace(t.messages, {**t.metadata, **added}, t.spans) for t in _traces(trace)]


def _traces(value: Any) -> list[trackio.Trace]:
    if isinstance(value, trackio.Trace):
        return [trackio.Trace(*map(with_media, (value.messages, value.metadata, value.spans)))]
    if isinstance(value, history_types()):
        return [trackio.Trace(messages) for messages in conversations(value)]
    if isinstance(value, TensorDictBase):
        chat = find_chat(value)
        return episode_traces(value) if chat is None else chat_traces(value, chat)
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{_ACCEPTED}, got {describe(value)}")
    if not value:
        raise ValueError(f"{_ACCEPTED}, got an empty {type(value).__name__}")
    if all(isinstance(item, Mapping) for item in value):
        return [trackio.Trace(to_messages(value))]
    if strange := [item for item in value if isinstance(item, (Mapping, str))]:
        raise TypeError(f"{_ACCEPTED}; in a list of {len(value)}, got {describe(strange[0])}")
    return [trace for item in value for trace in _traces(item)]
