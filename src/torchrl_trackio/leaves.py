"""The leaves of tensordicts, also of lazy stacks whose parts have different keys or shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from tensordict import is_non_tensor, is_tensor_collection

from torchrl_trackio.arrays import is_plain

Path = tuple[str, ...]


def leaves_of(td: Any, batch_dims: int) -> Iterator[tuple[Path, Any]]:
    """The paths and values of what is nested in a tensordict or tensorclass.

    What only some parts of a lazy stack have, or in different shapes, is a list along the batch, with ``None`` for
    those that lack it. Along a later dimension, as that of agents, it is a leaf of each part: ``agents/0/observation``.

    Args:
        td: the tensordict.
        batch_dims: how many of its first dimensions are the batch.
    """
    if hasattr(td, "tensordicts"):
        for key in _keys(td):
            yield from _leaves_under(td, key, batch_dims)
        return
    for key, value in td.items():
        if type(value) is torch.Tensor:  # nearly always, and much faster than the questions below
            yield (key,), value
        else:
            yield from _leaves_in(key, value, batch_dims)


def is_lazy(td: Any) -> bool:
    """Whether it is a lazy stack, or a tensorclass of one."""
    return is_tensor_collection(td) and not is_non_tensor(td) and hasattr(td, "tensordicts")


def _keys(td: Any) -> Iterable[str]:
    return dict.fromkeys(chain.from_iterable(map(_keys, td.tensordicts))) if hasattr(td, "tensordicts") else td.keys()


def _leaves_under(td: Any, key: str, batch_dims: int) -> Iterator[tuple[Path, Any]]:
    try:
        value = td.get(key, None)
    except (RuntimeError, AttributeError):  # of different shapes; of a tensor here and a tensordict there
        value = None
    apart = value is None and hasattr(td, "tensordicts")
    yield from _leaves_apart(td, key, batch_dims) if apart else _leaves_in(key, value, batch_dims)


def _leaves_in(key: str, value: Any, batch_dims: int) -> Iterator[tuple[Path, Any]]:
    if is_tensor_collection(value) and not is_non_tensor(value):
        yield from (((key, *path), leaf) for path, leaf in leaves_of(value, batch_dims))
    else:
        yield (key,), value


def _leaves_apart(stack: Any, key: str, batch_dims: int) -> Iterator[tuple[Path, Any]]:
    along = stack.stack_dim < batch_dims
    parts = [
        dict(_leaves_under(part, key, batch_dims - along)) if key in _keys(part) else {} for part in stack.tensordicts
    ]
    if along:
        paths = dict.fromkeys(chain.from_iterable(parts))
        yield from ((path, _stacked([part.get(path) for part in parts], stack.stack_dim)) for path in paths)
    else:
        yield from (((str(index), *path), leaf) for index, part in enumerate(parts) for path, leaf in part.items())


def _stacked(leaves: list[Any], dim: int) -> Any:
    """One tensor, where it is something else in which the parts differ; or else a list."""
    dense = all(isinstance(leaf, torch.Tensor) and is_plain(leaf) for leaf in leaves)
    if dense and len({(leaf.shape, leaf.dtype, leaf.device) for leaf in leaves}) == 1:
        return torch.stack(leaves, dim)
    return [leaf.tolist() if is_non_tensor(leaf) else leaf for leaf in leaves]
