"""Reading rollouts: the rows, entries and ends of tensordicts whose last batch dimension is time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDictBase, is_non_tensor, is_tensor_collection, lazy_stack

from torchrl_trackio.arrays import is_plain, rounded_numbers
from torchrl_trackio.hparams import to_json
from torchrl_trackio.leaves import Path, leaves_of

FLAGS = ("done", "terminated", "truncated")
NOT_DONE = "not done"


def rows(td: TensorDictBase) -> Iterator[tuple[tuple[int, ...], TensorDictBase]]:
    """The index and the rows ``[T]`` of a tensordict of any batch size; one without is a row of one."""
    if td.batch_dims > 1:
        for number in range(td.batch_size[0]):
            yield from (((number, *index), row) for index, row in rows(td[number]))
    else:
        yield (), td if td.batch_dims else lazy_stack([td])


def get(td: TensorDictBase, key: str | Path) -> Any:
    """An entry, or ``None``; a list where the shapes differ along the batch."""
    try:
        return td.get(key, None)
    except (RuntimeError, AttributeError):
        return [get(item, key) for item in td.unbind(0)]


def leaves(td: TensorDictBase) -> Iterator[tuple[Path, Any]]:
    """The paths and values of a tensordict's entries; not torchrl's own, whose names begin with an underscore."""
    return ((path, value) for path, value in leaves_of(td, td.batch_dims) if not path[-1].startswith("_"))


def is_dense(value: Any, most: int | None = None) -> bool:
    """Whether it is a tensor whose numbers can be read, and has no more than ``most`` of them at each step."""
    dense = isinstance(value, torch.Tensor) and is_plain(value)
    return dense and (most is None or value.numel() <= most * len(value))


def column(value: Any, start: int, stop: int) -> list[Any]:
    """An entry of a row as plain Python, step by step from ``start`` to ``stop``; nothing for nested entries."""
    if is_dense(value):
        return to_python(value[start:stop])  # type: ignore[no-any-return]
    if is_tensor_collection(value):
        return to_json(value[start:stop].tolist()) if is_non_tensor(value) else []
    if isinstance(value, torch.Tensor) and value.is_nested:
        value = list(value.unbind(0))
    entries = value[start:stop] if isinstance(value, list) else [value] * (stop - start)
    return [to_python(entry) if is_dense(entry) else to_json(entry) for entry in entries]


def to_python(tensor: torch.Tensor) -> Any:
    """The numbers of a tensor, without last dimensions of one."""
    while tensor.ndim > 1 and tensor.shape[-1] == 1:
        tensor = tensor[..., 0]
    numbers = rounded_numbers(tensor)
    return numbers if tensor.is_floating_point() else to_json(numbers)


def done_flags(row: TensorDictBase) -> dict[str, torch.Tensor]:
    """The flags ``[T]`` of a row, of ``next`` if there is one; of several agents, whether all are set."""
    steps, after = row.batch_size[0], get(row, "next")
    found = {p: v for p, v in leaves(row if after is None else after) if p[-1] in FLAGS and is_dense(v)}
    flags = {}
    for flag in FLAGS:
        values = [found[(flag,)]] if (flag,) in found else [v for p, v in found.items() if p[-1] == flag]
        each = [value.cpu().reshape(steps, -1).bool().all(-1) for value in values]
        flags[flag] = torch.stack(each).all(0) if each else torch.zeros(steps, dtype=torch.bool)
    if not any(path[-1] == "done" for path in found):
        flags["done"] = flags["terminated"] | flags["truncated"]
    return flags


def end_of(flags: dict[str, torch.Tensor], step: int) -> str:
    """How an episode has ended at a step."""
    return next((flag for flag in ("terminated", "truncated", "done") if flags[flag][step]), NOT_DONE)
