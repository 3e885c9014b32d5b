"""Conversations as messages, in the form that Trackio's dashboard shows best."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
import trackio
from tensordict import TensorDictBase, is_non_tensor, is_tensor_collection
from trackio.media import TrackioMedia

from torchrl_trackio.arrays import describe
from torchrl_trackio.hparams import key_to_json, to_json
from torchrl_trackio.leaves import Path
from torchrl_trackio.rollouts import FLAGS, NOT_DONE, column, done_flags, end_of, get, is_dense, rows, to_python

_PLACEHOLDER = "<none>"  # torchrl's role for what only fills up a batch
_PER_TOKEN = ("reward", "advantage")  # in the names of entries that may have many numbers for one conversation
_MOST_NUMBERS = 256  # of these that are written out

Message = dict[str, Any]


def history_types() -> tuple[type, ...]:
    """Torchrl's ``History`` and ``ChatHistory``; nothing until they are imported, since importing them takes long."""
    where = {"torchrl.data.llm.history": "History", "torchrl.modules.llm.policies.common": "ChatHistory"}
    return tuple(getattr(sys.modules[module], name) for module, name in where.items() if module in sys.modules)


def with_media(value: Any) -> Any:
    """Plain Python, but for Trackio's own media, which it stores beside the trace."""
    if value is None or type(value) is bool or isinstance(value, TrackioMedia):
        return value
    if type(value) is not str and is_tensor_collection(value):
        return with_media(_unpacked(value))
    if isinstance(value, Mapping):
        return {key_to_json(key): with_media(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [with_media(item) for item in value]
    return to_json(value)


def conversations(history: Any) -> list[list[Message]]:
    """The messages of each conversation in a ``History`` or ``ChatHistory``."""
    return [to_messages(messages) for messages in _unread(history)]


def to_messages(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Messages of plain Python, with each answer of a tool a message of its own that names the call.

    The dashboard pairs calls with answers by ``tool_call_id``, which a ``History`` lacks, and shows no
    ``tool_responses``.

    Raises:
        ValueError: if a message has no role.
    """
    kept: list[Message] = []
    for number, message in enumerate(messages):
        if message.get("role") is None:
            raise ValueError(f"message {number} has no role, got {describe(dict(message))}: give it a 'role'")
        if (plain := _plain(message))["role"] != _PLACEHOLDER:
            kept.extend(_split(plain))
    _pair(kept)
    return kept


def find_chat(td: TensorDictBase, path: Path = ()) -> Path | None:
    """The key of the first ``History`` or ``ChatHistory`` in a tensordict; ``next`` is looked through last."""
    types, inner = history_types(), []
    for key in sorted(td.keys() if types else (), key=lambda key: key == "next"):
        value = get(td, key)
        if isinstance(value, types):
            return (*path, key)
        if isinstance(value, TensorDictBase):
            inner.append((value, (*path, key)))
    return next(filter(None, (find_chat(*deeper) for deeper in inner)), None)


def chat_traces(td: TensorDictBase, chat: Path) -> list[trackio.Trace]:
    """A trace for each conversation under the key ``chat``; the turns of one are one trace."""
    return [trace for _, row in rows(td) for trace in _row_traces(row, chat)]


def reward_status(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The reward as the status, which is a column of the dashboard's list; nothing without a number for it."""
    gained = metadata.get("return", metadata.get("reward"))
    return {"status": f"reward {gained:.6g}"} if isinstance(gained, (int, float)) else {}


def _row_traces(row: TensorDictBase, chat: Path) -> Iterator[trackio.Trace]:
    found, columns, flags = conversations(get(row, chat)), _columns(row), done_flags(row)
    steps = row.batch_size[0]
    if len(found) != steps:  # a History whose only batch dimension is that of its messages
        yield from (trackio.Trace(messages, _metadata(messages, columns)) for messages in found)
        return
    if (later := get(row, ("next", *chat))) is not None:  # which ends with what the environment answered
        found = [b if _continues(a, b) else a for a, b in zip(found, conversations(later), strict=True)]
    start = 0
    for stop in range(1, steps + 1):
        turn = found[stop - 1]
        if stop == steps or not turn or flags["done"][stop - 1] or not _continues(turn, found[stop]):
            part = {name: values[start:stop] for name, values in columns.items()}
            status = end_of(flags, stop - 1)
            ended = {} if status == NOT_DONE else {"status": status}
            yield trackio.Trace(turn, {**ended, **_metadata(turn, part)})
            start = stop


def _continues(before: list[Message], after: list[Message]) -> bool:
    return len(after) > len(before) and after[: len(before)] == before


def _columns(row: TensorDictBase) -> dict[str, list[Any]]:
    """Rewards, other numbers and texts of each step, those of many tokens as tensors; ``next`` comes before the row."""
    columns: dict[str, list[Any]] = {}
    for td in (row, get(row, "next")):
        for key in () if td is None else td.keys():
            if key not in FLAGS and (values := _values(key, get(td, key), row.batch_size[0])):
                columns[key] = values
    return columns


def _values(key: str, value: Any, steps: int) -> list[Any]:
    """An entry step by step; nothing if it has more than a number or text each, unless these are of its tokens."""
    of_tokens = any(name in key for name in _PER_TOKEN)
    if isinstance(value, torch.Tensor) and value.is_nested:
        value = list(value.unbind(0))
    if is_dense(value) and not is_dense(value, 1):
        return list(value) if of_tokens else []
    if isinstance(value, list) and all(map(is_dense, value)):
        return value if of_tokens else []
    values = column(value, 0, steps)
    return values if all(isinstance(item, (str, int, float)) for item in values) else []


def _metadata(messages: list[Message], columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    texts = [message.get("content") for message in messages]
    metadata: dict[str, Any] = {}
    for name, found in columns.items():
        values = [_short(value) for value in found]
        once = len(values) == 1 or (isinstance(values[0], str) and all(value == values[0] for value in values))
        value = values[0] if once else values
        if not (isinstance(value, str) and value in texts):
            metadata[name] = value
        if name == "reward":
            metadata |= _total(found, values)
    return metadata | reward_status(metadata)


def _total(rewards: list[Any], short: list[Any]) -> dict[str, float]:
    """The sum of several rewards, of turns or of tokens; of one that is that of every token, once."""
    if any(isinstance(reward, str) for reward in rewards):
        return {}
    each = [
        s if isinstance(s, (int, float)) else float(r.detach().cpu().double().sum())
        for r, s in zip(rewards, short, strict=True)
    ]
    return {"return": float(f"{sum(each):.7g}")} if len(each) > 1 or each != short else {}


def _short(value: Any) -> Any:
    """The numbers of many tokens: one where all are the same, words where they are too many."""
    if not isinstance(value, torch.Tensor):
        return value
    numbers = value.detach().cpu().flatten()
    if len(numbers) and bool((numbers == numbers[0]).all()):
        return to_python(numbers[0])
    if len(numbers) > _MOST_NUMBERS:
        return f"{len(numbers)} numbers from {numbers.min():g} to {numbers.max():g}"
    return to_python(value)


def _unread(history: Any) -> list[list[Message]]:
    """The messages, as they are, of each conversation in a ``History`` or ``ChatHistory``."""
    if hasattr(history, "prompt"):
        parts = [history.prompt, history.response] if history.full is None else [history.full]
        read = [_unread(part) for part in parts if part is not None]
        if not read:
            raise ValueError("got a ChatHistory with no conversation in it: set its full, or its prompt and response")
        return [list(chain(*pieces)) for pieces in zip(*read, strict=True)]
    if history.batch_dims > 1:
        return [conversation for part in history.unbind(0) for conversation in _unread(part)]
    if history.batch_dims == 0:
        return [[dict(history.items())]]
    return [[dict(message.items()) for message in history.unbind(0)] if len(history) else []]


def _plain(message: Mapping[str, Any]) -> Message:
    """What is set of a message, in plain Python; that it is complete goes without saying."""
    fields = {name: with_media(value) for name, value in message.items()}
    return {k: v for k, v in fields.items() if v is not None and (k, v) != ("is_complete", True)}


def _unpacked(collection: Any) -> Any:
    """The Python objects in a tensordict or in content parts, without the fields that are not set."""
    if is_non_tensor(collection):
        return collection.tolist() if collection.batch_dims else collection.data
    if isinstance(collection, TensorDictBase):
        return collection.to_dict()
    if collection.batch_dims:
        return list(collection.unbind(0))
    return {name: value for name, value in collection.to_dict().items() if value is not None}


def _split(message: Message) -> list[Message]:
    """The message, and each of its ``tool_responses`` as a message."""
    responses = message.pop("tool_responses", None)
    responses = responses if isinstance(responses, list) else [responses] if responses else []
    answers = [{"role": "tool", "content": response} for response in responses]
    if not answers or message["role"] != "tool":
        return [message, *answers]
    return answers if message.get("content") in ("", None, *responses) else [*answers, message]


def _pair(messages: list[Message]) -> None:
    """Give calls their ids, and the answers that have none those of the last calls, in their order.

    A message that has calls only gets them as its text, too: the dashboard's list would call it no response.
    """
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            calls = calls if isinstance(calls, list) else [calls]
            calls = [_with_id(call, f"call-{number}-{place}") for place, call in enumerate(calls)]
            message["tool_calls"], waiting = calls, [call["id"] for call in calls if isinstance(call, dict)]
            message["content"] = message.get("content") or ", ".join(map(_shown, calls))
        elif message["role"] == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            elif "tool_call_id" not in message and waiting:
                message["tool_call_id"] = waiting.pop(0)


def _with_id(call: Any, name: str) -> Any:
    return {**call, "id": call.get("id") or name} if isinstance(call, dict) else call


def _shown(call: Any) -> str:
    """A call as Python writes it."""
    function = call.get("function", call) if isinstance(call, dict) else {}
    if not isinstance(function, dict) or "name" not in function:
        return str(call)
    arguments = function.get("arguments") or {}
    named = isinstance(arguments, dict)
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items()) if named else str(arguments)
    return f"{function['name']}({shown})"
