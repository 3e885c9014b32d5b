"""Conversations and episodes as Trackio traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import TensorDictBase

from torchrl_trackio.arrays import describe, size_of
from torchrl_trackio.conversations import chat_traces, conversations, find_chat, history_types, to_messages, with_media
from torchrl_trackio.episodes import MOST_EPISODES, episode_traces

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
            - a rollout tensordict, batch ``[..., T]``: a trace for each episode, with one span for each step. The
              first 32 episodes of a call are stored, of each the first 500 steps, and values of up to 16 numbers; what
              is left out is said in the metadata. Conversations are all stored.
            - a :class:`trackio.Trace`.
        metadata: what is added to the metadata of each trace, and wins over what is there. Of a list, tensor or array
            with one element for each of several traces, each gets its own.

    Raises:
        TypeError: for anything else.
        ValueError: if there is nothing to store: an empty list, batch or rollout, a message without a role, a
            tensordict with neither a conversation nor a reward or an action.

    Warns:
        TrackioWarning: over 32 episodes.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"a trace's metadata is a mapping, got {describe(metadata)}")
    found = _traces(trace, iter(range(MOST_EPISODES)))
    added = [with_media(_part(metadata or {}, number, len(found))) for number in range(len(found))]
    return [trackio.Trace(t.messages, {**t.metadata, **a}, t.spans) for t, a in zip(found, added, strict=True)]


def _part(metadata: Mapping[str, Any], number: int, count: int) -> dict[str, Any]:
    """The metadata of one of several traces: its own value of what has one for each."""
    part = dict(metadata)
    for key, value in metadata.items() if count > 1 else ():
        if _length(value) == count:
            own = value[number]
            part[key] = own.reshape(()) if isinstance(own, (torch.Tensor, np.ndarray)) and size_of(own) == 1 else own
    return part


def _length(value: Any) -> int | None:
    listed = isinstance(value, (list, tuple)) or (isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 0)
    return len(value) if listed else None


def _traces(value: Any, room: Iterator[Any]) -> list[trackio.Trace]:
    if isinstance(value, trackio.Trace):
        return [trackio.Trace(*map(with_media, (value.messages, value.metadata, value.spans)))]
    if isinstance(value, (TensorDictBase, *history_types())):
        return _batch_traces(value, room)
    if not isinstance(value, (list, tuple)):
        hint = ": make a list of it" if isinstance(value, (Iterator, ValuesView)) else ""
        raise TypeError(f"{_ACCEPTED}, got {describe(value)}{hint}")
    if not value:
        raise ValueError(f"{_ACCEPTED}, got an empty {type(value).__name__}")
    messages = [item for item in value if isinstance(item, Mapping) and not isinstance(item, TensorDictBase)]
    if len(messages) == len(value):
        return [trackio.Trace(to_messages(value))]
    if strange := [*messages, *(item for item in value if isinstance(item, str))]:
        raise TypeError(f"{_ACCEPTED}; in a list of {len(value)}, got {describe(strange[0])}")
    return [trace for item in value for trace in _traces(item, room)]


def _batch_traces(value: Any, room: Iterator[Any]) -> list[trackio.Trace]:
    """The traces of one of torchrl's own structures."""
    if isinstance(value, history_types()):
        traces = [trackio.Trace(messages) for messages in conversations(value)]
    elif (chat := find_chat(value)) is None:
        return episode_traces(value, room)
    else:
        traces = chat_traces(value, chat)
    if not traces:
        size = tuple(value.batch_size)
        raise ValueError(f"{_ACCEPTED}, got a {type(value).__name__} of batch size {size}, which holds none")
    return traces
