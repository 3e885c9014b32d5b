"""Control episodes as traces: one span for each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import trackio
from tensordict import TensorDictBase, is_non_tensor, is_tensor_collection, lazy_stack

from torchrl_trackio.arrays import describe, is_plain
from torchrl_trackio.hparams import to_json

FLAGS = ("done", "terminated", "truncated")
NOT_DONE = "not done"
_MOST_SPANS = 500  # of an episode
_MOST_NUMBERS = 16  # of one value at one step that are written out

Path = tuple[str, ...]


def episode_traces(td: TensorDictBase) -> list[trackio.Trace]:
    """A trace for each episode of a rollout of batch ``[..., T]``; several follow each other where one is done.

    Raises:
        ValueError: if the tensordict holds neither rewards nor actions.
    """
    names = {path[-1] for path, _ in _leaves(td)}
    if not names & {"reward", "action"}:
        raise ValueError(
            "log_trace takes tensordicts with a conversation (History, ChatHistory), or with a 'reward' or 'action', "
            f"got one of batch size {tuple(td.batch_size)} with {sorted(names) or 'nothing'}"
        )
    return [trace for index, row in rows(td) for trace in _row_traces(row, index)]


def rows(td: TensorDictBase) -> Iterator[tuple[tuple[int, ...], TensorDictBase]]:
    """The index and the rows ``[T]`` of a tensordict of any batch size; one without is a row of one."""
    if td.batch_dims > 1:
        for number, part in enumerate(td.unbind(0)):
            yield from (((number, *index), row) for index, row in rows(part))
    else:
        yield (), td if td.batch_dims else lazy_stack([td])


def get(td: TensorDictBase, key: str | Path) -> Any:
    """An entry, or ``None``; a list where the shapes differ along the batch."""
    try:
        return td.get(key, None)
    except RuntimeError:
        return [item.get(key) for item in td.unbind(0)]


def column(value: Any, steps: int) -> list[Any]:
    """An entry of a row as plain Python, step by step; nothing for nested entries.

    Numbers of at most 32 bits are given with the 7 digits that they have, not with the noise behind them.
    """
    if isinstance(value, torch.Tensor) and is_plain(value):
        return _numbers(value)  # type: ignore[no-any-return]
    if is_tensor_collection(value):
        value = value.tolist() if is_non_tensor(value) else []
    if isinstance(value, torch.Tensor) and value.is_nested:
        value = list(value.unbind(0))
    entries = value if isinstance(value, list) else [value] * steps
    return [_numbers(e) if isinstance(e, torch.Tensor) and is_plain(e) else to_json(e) for e in entries]


def done_flags(row: TensorDictBase) -> dict[str, list[bool]]:
    """The flags of a row for each step, of ``next`` if there is one; of several agents, whether all are set."""
    steps, after = row.batch_size[0], get(row, "next")
    found = {p: v for p, v in _leaves(row if after is None else after) if p[-1] in FLAGS and _is_dense(v)}
    flags = {}
    for flag in FLAGS:
        values = [found[(flag,)]] if (flag,) in found else [v for p, v in found.items() if p[-1] == flag]
        each = [value.reshape(steps, -1).bool().all(-1) for value in values]
        flags[flag] = torch.stack(each).all(0).tolist() if each else []
    ended = [flags["terminated"], flags["truncated"]]
    flags["done"] = flags["done"] or [any(now) for now in zip(*filter(None, ended), strict=True)]
    return {flag: values or [False] * steps for flag, values in flags.items()}


def end_of(flags: dict[str, list[bool]], step: int) -> str:
    """How an episode has ended at a step."""
    return next((flag for flag in ("terminated", "truncated", "done") if flags[flag][step]), NOT_DONE)


def _row_traces(row: TensorDictBase, index: tuple[int, ...]) -> Iterator[trackio.Trace]:
    for key in ("mask", ("collector", "mask")):  # of split_trajectories, which fills up with zeros
        if isinstance(mask := get(row, key), torch.Tensor) and mask.shape == row.batch_size:
            row = row[mask.bool()]
    steps = row.batch_size[0]
    if not steps:
        return
    flags, episode = done_flags(row), _Row(row)
    bounds = _bounds(flags["done"], episode.last_new(flags["done"]))
    for number, (start, stop) in enumerate(bounds):
        metadata = {**episode.total(start, stop), "length": stop - start, "status": end_of(flags, stop - 1)}
        if index:
            metadata["env"] = index[0] if len(index) == 1 else list(index)
        if len(bounds) > 1:
            metadata["episode"] = number
        yield episode.trace(start, stop, metadata)


def _bounds(done: list[bool], end: int) -> list[tuple[int, int]]:
    """Where the episodes of a row start and stop."""
    stops = [step + 1 for step in range(end) if done[step] or step + 1 == end]
    return list(zip([0, *stops], stops, strict=False))


class _Row:
    """The steps of a row, column by column."""

    def __init__(self, row: TensorDictBase) -> None:
        self.steps = row.batch_size[0]
        before = {path: value for path, value in _leaves(row) if path[0] != "next"}
        after = dict(_leaves(get(row, "next"))) if get(row, "next") is not None else {}
        outcome = after if any(path[-1] == "reward" for path in after) else {**before, **after}
        self._rewards = {path: v for path, v in outcome.items() if path[-1] == "reward" and _is_dense(v)}
        results = {path: value for path, value in outcome.items() if path[-1] in ("reward", *FLAGS)}
        self._omitted: dict[str, str] = {}
        inputs = {path: v for path, v in before.items() if path[-1] not in ("reward", *FLAGS)}
        inputs = dict(sorted(inputs.items(), key=lambda item: item[0][-1] != "action"))
        self._input = self._columns(inputs)
        self._output = self._columns({**results, **{path: v for path, v in after.items() if path not in before}})
        self._last = self._columns({path: v for path, v in after.items() if path in inputs})

    def last_new(self, done: list[bool]) -> int:
        """Where the row ends: ``break_when_all_done`` repeats the last step of each environment that is done first."""
        end: int = self.steps
        columns = [*self._input.values(), *self._output.values()]
        while end > 1 and done[end - 1] and done[end - 2] and all(c[end - 1] == c[end - 2] for c in columns):
            end -= 1
        return end if not all(done[:end]) else self.steps

    def total(self, start: int, stop: int) -> dict[str, Any]:
        """The sum of rewards, if there are any: a number, or one for each agent, or those of each group of agents."""
        sums = {}
        for path, value in self._rewards.items():
            part = value[start:stop]
            total = part.sum(0, dtype=torch.float64 if part.is_floating_point() else None)
            sums["/".join(path)] = _squeezed(_numbers(total if part.dtype == torch.float64 else total.to(part.dtype)))
        return {"return": next(iter(sums.values())) if len(sums) == 1 else sums} if sums else {}

    def trace(self, start: int, stop: int, metadata: dict[str, Any]) -> trackio.Trace:
        """The trace of one episode."""
        shown, length = min(stop, start + _MOST_SPANS), stop - start
        spans = [self._span(step, step - start, step == stop - 1) for step in range(start, shown)]
        said = f"Episode of {length} steps" if length > 1 else "Episode of 1 step"
        if shown < stop:
            metadata["spans"] = f"the first {_MOST_SPANS} of {length} steps"
            said += f", the first {_MOST_SPANS} are shown"
        elif metadata["status"] != NOT_DONE:
            spans[-1]["status"] = metadata["status"]
        if self._omitted:
            metadata["not shown"] = self._omitted
        gained = f"return {_text(metadata['return'])}, " if "return" in metadata else ""
        # The dashboard lists traces by their first user's and assistant's messages, and shows nothing else of them.
        messages = [
            {"role": "user", "content": said},
            {"role": "assistant", "content": f"{gained}{metadata['status']}"},
        ]
        return trackio.Trace(messages, metadata, spans)

    def _span(self, step: int, number: int, last: bool) -> dict[str, Any]:
        rewards = [self._output.get("/".join(path)) for path in self._rewards]
        name = f"step {number}"
        if len(rewards) == 1 and rewards[0]:
            name += f": reward {_text(rewards[0][step])}"
        output = {**self._output, **(self._last if last else {})}
        return {
            "id": f"step-{number}",
            "name": name,
            "kind": "span",
            "input": {key: values[step] for key, values in self._input.items()},
            "output": {key: values[step] for key, values in output.items()},
        }

    def _columns(self, entries: dict[Path, Any]) -> dict[str, list[Any]]:
        columns = {}
        for path, value in entries.items():
            if isinstance(value, torch.Tensor) and not _is_dense(value, _MOST_NUMBERS):
                self._omitted["/".join(path)] = describe(value)
            else:
                columns["/".join(path)] = column(value, self.steps)
        return columns


def _leaves(td: TensorDictBase, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The paths and values of a tensordict's entries; not torchrl's own, whose names begin with an underscore."""
    for key in td.keys():  # noqa: SIM118 - a tensordict iterates over its batch
        value = get(td, key)
        if is_tensor_collection(value) and not is_non_tensor(value):
            yield from _leaves(value, (*path, key))
        elif not key.startswith("_"):
            yield (*path, key), value


def _is_dense(value: Any, most: int | None = None) -> bool:
    """Whether it is a tensor whose numbers can be read, and has no more than ``most`` of them at each step."""
    dense = isinstance(value, torch.Tensor) and is_plain(value)
    return dense and (most is None or value[0].numel() <= most)


def _numbers(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    while tensor.ndim > 1 and tensor.shape[-1] == 1:
        tensor = tensor[..., 0]
    if not tensor.is_floating_point():
        return to_json(tensor.tolist())
    return tensor.tolist() if tensor.dtype == torch.float64 else _rounded(tensor.tolist())


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _squeezed(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, itertools.islice(value, 8)))}{', ...' if len(value) > 8 else ''}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
