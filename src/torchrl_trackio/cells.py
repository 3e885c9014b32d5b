"""Cells of tables: numbers, text and images that Trackio stores and the dashboard shows as they are."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import trackio
from trackio.media import TrackioMedia

from torchrl_trackio.arrays import describe, is_plain, size_of
from torchrl_trackio.names import check_text

_IMAGES = (trackio.Image, trackio.Object3D)
_UNSHOWN = (TrackioMedia, trackio.Histogram, trackio.Markdown, trackio.Table, trackio.Trace)
_EXACT = range(-(2**53), 2**53 + 1)  # integers that a browser shows as they are
_MOST_NUMBERS = 16  # of a tensor, in one cell


def to_cell(value: Any) -> Any:
    """What is stored of one value.

    Args:
        value: a number, bool, text or ``None``; a tensor or array of one element, or of up to 16, which become text, or
            of more, of which shape and dtype are stored; a :class:`trackio.Image` or ``Object3D``, or a list of them.
            Lists, mappings, dates and whatever else has a text of its own become that text, of which the dashboard
            shows 250 characters; and so do integers beyond 2**53, which browsers round.

    Raises:
        TypeError: if it has no text, or is media that the dashboard does not show in a table.
        ValueError: if a text is no valid Unicode.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        found = _read(value)
        return str(found) if isinstance(found, list) else found
    if isinstance(value, int):
        return int(value) if value in _EXACT else str(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, _IMAGES):
        return copy.copy(value)  # in which Trackio notes where it was stored
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _IMAGES) for item in value):
        return [copy.copy(item) for item in value]
    return _text(value)


def to_cells(column: torch.Tensor | np.ndarray) -> list[Any]:
    """:func:`to_cell` of each element of the first dimension; of elements with one number, of that number."""
    _check(column)
    width = math.prod(column.shape[1:])
    if width > _MOST_NUMBERS:
        return [describe(element) for element in column]
    column = _on_cpu(column)
    if width != 1:
        return [to_cell(element) for element in column]
    array = np.asarray(column).reshape(-1)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        return [float(str(number)) for number in array]  # 0.1 rather than 0.10000000149011612
    if array.dtype.kind in "Mmc":
        return [str(element) for element in array]
    cells: list[Any] = array.tolist()
    return cells if array.dtype.kind in "bf" else [to_cell(cell) for cell in cells]


def _read(value: torch.Tensor | np.ndarray | np.generic) -> Any:
    """One cell, a nested list of few, or what there are too many of."""
    _check(value)
    if size_of(value) > _MOST_NUMBERS:
        return describe(value)
    cells = to_cells(value.reshape(-1))
    return cells[0] if len(cells) == 1 else np.array(cells, object).reshape(value.shape).tolist()


def _check(value: Any) -> None:
    if isinstance(value, torch.Tensor) and not is_plain(value):
        raise TypeError(f"a table takes dense tensors with values, got {describe(value)}")


def _on_cpu(value: torch.Tensor | np.ndarray) -> torch.Tensor | np.ndarray:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_floating_point() and value.dtype.itemsize < 4:
        value = value.float()  # of which numpy does not have all
    return value.cpu().resolve_neg().resolve_conj()


def _text(value: Any) -> str:
    kind = type(value)
    speechless = all(getattr(kind, name) is getattr(object, name) for name in ("__str__", "__repr__"))
    if speechless or isinstance(value, _UNSHOWN):
        raise TypeError(
            "a table's cell takes a number, text, None, a tensor, an Image or what has a text of its own; "
            f"got {describe(value)}: log other media by themselves"
        )
    try:
        text = str(_plain(value))
    except Exception as error:  # noqa: BLE001 - an object's own code can raise anything
        raise TypeError(f"the text of a {kind.__name__} for a table's cell cannot be had: {error!r}") from None
    check_text("text", text)
    return text


def _plain(value: Any) -> Any:
    """Lists and mappings with numbers in the place of tensors."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return _read(value) if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) else value
