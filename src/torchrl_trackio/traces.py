"""Conversations and episodes as Trackio traces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import TensorDictBase

from torchrl_trackio.arrays import describe, size_of
from torchrl_trackio.conversations import (
    chat_traces,
    conversations,
    find_chat,
    history_types,
    reward_status,
    to_messages,
    with_media,
)
from torchrl_trackio.episodes import MOST_EPISODES, episode_traces
from torchrl_trackio.errors import warn
from torchrl_trackio.rollouts import FLAGS, is_dense

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
        metadata: what is added to the metadata of each trace, and wins over what is there. Of a list with one element
            for each of several traces, each gets its own; so of a tensor or array whose first dimensions have one for
            each, as ``(B, 1)`` and ``(1, B)``. One element of a tensor or array is a number. The ``reward`` of a
            conversation is also its status in the dashboard's list, unless there is another.

    Raises:
        TypeError: for anything else.
        ValueError: if there is nothing to store: an empty list, batch or rollout, no message in any conversation (where
            only some have none, these are stored, too, so that each reward stays with its own), a message without a
            role, a tensordict with neither a conversation nor a reward or an action.

    Warns:
        TrackioWarning: over 32 episodes; a tensor or array in the metadata that does not fit several traces.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"a trace's metadata is a mapping, got {describe(metadata)}")
    found = _traces(trace, iter(range(MOST_EPISODES)))
    if not any(trace.messages or trace.spans for trace in found):
        raise ValueError(f"{_ACCEPTED}, got a {type(trace).__name__} without any message")
    each = {key: _of_each(key, value, len(found)) for key, value in (metadata or {}).items()}
    return [_extended(trace, {key: values[n] for key, values in each.items()}) for n, trace in enumerate(found)]


def _of_each(key: Any, value: Any, count: int) -> list[Any]:
    """The value of each trace: its own where there is one for each of several."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        value = list(value.unbind(0))
    if count > 1 and _is_array(value):
        value = _split(key, value, count)
    listed = count > 1 and isinstance(value, (list, tuple)) and len(value) == count
    return [_number_in(item) for item in value] if listed else [_number_in(value)] * count


def _split(key: Any, value: torch.Tensor | np.ndarray, count: int) -> Any:
    """A tensor or array as a list, if its first dimensions have a place for each trace."""
    for dims in range(1, value.ndim + 1):
        if math.prod(value.shape[:dims]) == count:
            return list(value.reshape(count, *value.shape[dims:]))
    if value.ndim and len(value) > 1:
        warn(
            f"each of {count} traces gets the whole of the metadata {key!r}, {describe(value)}: "
            f"to give each its own, pass {count} elements, or a first dimension of {count}"
        )
    return value


def _number_in(value: Any) -> Any:
    """A tensor or array of one element without its dimensions; anything else."""
    return value.reshape(()) if _is_array(value) and size_of(value) == 1 else value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_dense(value)


def _extended(trace: trackio.Trace, added: dict[str, Any]) -> trackio.Trace:
    """The trace with more metadata, whose reward is its status unless there is one that tells something else."""
    added, status = with_media(added), str(trace.metadata.get("status") or "")
    if not trace.spans and (status in ("", *FLAGS) or status.startswith("reward ")):
        added = {**reward_status(added), **added}
    return trackio.Trace(trace.messages, {**trace.metadata, **added}, trace.spans)


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
