"""Control episodes as traces: one span for each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import trackio
from tensordict import TensorDictBase

from torchrl_trackio.arrays import describe
from torchrl_trackio.errors import warn
from torchrl_trackio.leaves import Path
from torchrl_trackio.rollouts import (
    FLAGS,
    NOT_DONE,
    column,
    done_flags,
    end_of,
    get,
    is_dense,
    leaves,
    rows,
    to_python,
)

MOST_EPISODES = 32  # of one call
_MOST_SPANS = 500  # of an episode
_MOST_NUMBERS = 16  # of one value at one step that are written out


def episode_traces(td: TensorDictBase, room: Iterator[Any]) -> list[trackio.Trace]:
    """A trace for each episode of a rollout of batch ``[..., T]``; several follow each other where one is done.

    Args:
        td: the rollout.
        room: what gives something for each episode that may still be stored, of this rollout or of others.

    Raises:
        ValueError: if the tensordict holds neither rewards nor actions, or no step.

    Warns:
        TrackioWarning: where there are more episodes than room; the traces say of how many steps they are the first.
    """
    names, size = {path[-1] for path, _ in leaves(td)}, tuple(td.batch_size)
    if not names & {"reward", "action"}:
        raise ValueError(
            "log_trace takes tensordicts with a conversation (History, ChatHistory), or with a 'reward' or 'action', "
            f"got one of batch size {size} with {sorted(names) or 'nothing'}"
        )
    traces: list[trackio.Trace] = []
    for row, start, stop, metadata in _episodes(td):
        if next(room, None) is None:
            warn(f"log_trace stores the first {MOST_EPISODES} episodes of a call: give it fewer, as in rollout[:8]")
            for trace in traces:
                trace.metadata["episodes"] = f"the first {len(traces)} of a batch of {' x '.join(map(str, size))} steps"
            return traces
        traces.append(row.trace(start, stop, metadata))
    if not traces:
        raise ValueError(f"log_trace takes rollouts of at least one step, got one of batch size {size}")
    return traces


def _episodes(td: TensorDictBase) -> Iterator[tuple[_Row, int, int, dict[str, Any]]]:
    """Row, first step, step behind the last, and metadata of each episode."""
    for index, whole in rows(td):
        row = _without_padding(whole)
        if not row.batch_size[0]:
            continue
        flags, steps = done_flags(row), _Row(row)
        end = steps.end(flags["done"])
        stops = [*(flags["done"][: end - 1].nonzero().flatten() + 1).tolist(), end]
        for number, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
            metadata = {**steps.total(start, stop), "length": stop - start, "status": end_of(flags, stop - 1)}
            if index:
                metadata["env"] = index[0] if len(index) == 1 else list(index)
            if len(stops) > 1:
                metadata["episode"] = number
            yield steps, start, stop, metadata


def _without_padding(row: TensorDictBase) -> TensorDictBase:
    """The steps under the mask of ``split_trajectories``, which fills up with zeros."""
    for key in ("mask", ("collector", "mask")):
        if isinstance(mask := get(row, key), torch.Tensor) and mask.shape == row.batch_size:
            row = row[mask.bool()]
    return row


class _Row:
    """The steps of a row, entry by entry."""

    def __init__(self, row: TensorDictBase) -> None:
        self._steps = row.batch_size[0]
        before = {path: value for path, value in leaves(row) if path[0] != "next"}
        after = dict(leaves(get(row, "next"))) if get(row, "next") is not None else {}
        outcome = after if any(path[-1] == "reward" for path in after) else {**before, **after}
        self._rewards = {path: v for path, v in outcome.items() if path[-1] == "reward" and is_dense(v)}
        results = {path: value for path, value in outcome.items() if path[-1] in ("reward", *FLAGS)}
        inputs = {path: v for path, v in before.items() if path[-1] not in ("reward", *FLAGS)}
        inputs = dict(sorted(inputs.items(), key=lambda item: item[0][-1] != "action"))
        self._observed = [v for path, v in inputs.items() if path[-1] != "action" and is_dense(v)]
        self._all = [v for v in (*before.values(), *after.values()) if is_dense(v)]
        self._omitted: dict[str, str] = {}
        self._input = self._shown(inputs)
        self._output = self._shown({**results, **{path: v for path, v in after.items() if path not in before}})
        self._last = self._shown({path: v for path, v in after.items() if path in inputs})

    def end(self, done: torch.Tensor) -> int:
        """Where the row ends: ``break_when_all_done`` repeats the last step of each environment that is done first.

        Told from episodes of one step each by what is observed: they begin as the first episode did.
        """
        last = int(done.int().argmax())
        waits = bool(done[last:].all()) and any(not torch.equal(value[0], value[last]) for value in self._observed)
        return last + 1 if waits and all((v[last + 1 :] == v[last]).all() for v in self._all) else self._steps

    def total(self, start: int, stop: int) -> dict[str, Any]:
        """The sum of rewards, if there are any: a number, or one for each agent, or those of each group of agents."""
        sums = {}
        for path, value in self._rewards.items():
            part = value[start:stop].detach().cpu()
            total = (part.double() if part.is_floating_point() else part.long()).sum(0)
            exact = part.dtype == torch.float64 or not part.is_floating_point()
            sums["/".join(path)] = _squeezed(to_python(total if exact else total.float()))
        return {"return": next(iter(sums.values())) if len(sums) == 1 else sums} if sums else {}

    def trace(self, start: int, stop: int, metadata: dict[str, Any]) -> trackio.Trace:
        """The trace of one episode."""
        shown, length = min(stop, start + _MOST_SPANS), stop - start
        spans = self._spans(start, shown)
        said = f"Episode of {length} steps" if length > 1 else "Episode of 1 step"
        if shown < stop:
            metadata["spans"] = f"the first {_MOST_SPANS} of {length} steps"
            said += f", the first {_MOST_SPANS} are shown"
        else:
            spans[-1]["output"] |= {name: column(value, stop - 1, stop)[0] for name, value in self._last.items()}
            if metadata["status"] != NOT_DONE:
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

    def _spans(self, start: int, stop: int) -> list[dict[str, Any]]:
        inputs, outputs = (
            {name: column(value, start, stop) for name, value in entries.items()}
            for entries in (self._input, self._output)
        )
        rewards = [outputs.get("/".join(path)) for path in self._rewards]
        named = rewards[0] if len(rewards) == 1 and rewards[0] else None
        return [
            {
                "id": f"step-{step}",
                "name": f"step {step}: reward {_text(named[step])}" if named else f"step {step}",
                "kind": "span",
                "input": {name: values[step] for name, values in inputs.items()},
                "output": {name: values[step] for name, values in outputs.items()},
            }
            for step in range(stop - start)
        ]

    def _shown(self, entries: dict[Path, Any]) -> dict[str, Any]:
        """The entries by their names, without those that are too big to be written out."""
        big = [path for path, value in entries.items() if _is_big(value)]
        self._omitted |= {"/".join(path): describe(entries[path]) for path in big}
        return {"/".join(path): value for path, value in entries.items() if path not in big}


def _is_big(value: Any) -> bool:
    if isinstance(value, list):  # whose shapes differ
        return any(isinstance(item, torch.Tensor) and item.numel() > _MOST_NUMBERS for item in value)
    return isinstance(value, torch.Tensor) and not is_dense(value, _MOST_NUMBERS)


def _squeezed(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, itertools.islice(value, 8)))}{', ...' if len(value) > 8 else ''}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
