"""Cells of tables: numbers, text and images that Trackio stores and the dashboard shows as they are."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np
import torch
import trackio
from trackio.media import TrackioMedia

from torchrl_trackio.arrays import describe, is_plain, rounded_numbers, size_of
from torchrl_trackio.names import check_text

VIEWS = (KeysView, ValuesView, ItemsView)  # of mappings: lists in all but name

_IMAGES = (trackio.Image, trackio.Object3D)
_UNSHOWN = (TrackioMedia, trackio.Histogram, trackio.Markdown, trackio.Table, trackio.Trace)
_EXACT = range(-(2**53), 2**53 + 1)  # integers that a browser shows as they are
_MOST_NUMBERS = 16  # of a tensor, in one cell
_ADDRESS = re.compile("<.* at 0x[0-9a-f]+.*>", re.DOTALL | re.IGNORECASE)  # the text of what has none of its own


class _NoTextError(TypeError):
    pass


def to_cell(value: Any) -> Any:
    """What is stored of one value.

    Args:
        value: a number, bool, text or ``None``; a tensor or array of one element, or of up to 16, which become text, or
            of more, of which shape and dtype are stored; a :class:`trackio.Image` or ``Object3D``, or a list of them.
            Lists, mappings, dates and whatever else has a text of its own become that text, of which the dashboard
            shows 250 characters; and so do integers beyond 2**53, which browsers round.

    Raises:
        TypeError: if it has no text, as functions, or is an iterator, or media that the dashboard does not show in a
            table.
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
    column = column.detach().cpu() if isinstance(column, torch.Tensor) else column
    if width != 1:
        return [to_cell(element) for element in column]
    column = column.reshape(-1)
    if isinstance(column, torch.Tensor) and column.is_complex():
        parts = (rounded_numbers(part) for part in (column.real, column.imag))
        return [str(complex(*pair)) for pair in zip(*parts, strict=True)]
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mmc":
        return [str(element) for element in column]
    if column.dtype == np.longdouble:
        column = column.astype(float)
    return [to_cell(cell) for cell in rounded_numbers(column)]


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


def _text(value: Any) -> str:
    try:
        text = str(_plain(value, str))
    except _NoTextError as error:
        raise TypeError(*error.args) from None
    except Exception as error:  # noqa: BLE001 - an object's own code can raise anything
        raise TypeError(f"the text of a {type(value).__name__} for a table's cell cannot be had: {error!r}") from None
    check_text("text", text)
    return text


def _plain(value: Any, say: Callable[[Any], str] = repr) -> Any:
    """Lists and mappings with numbers in the place of tensors; nothing in them is without a text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, *VIEWS)):
        return [_plain(item) for item in value]
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return _read(value)
    if isinstance(value, (*_UNSHOWN, Iterator)) or (not isinstance(value, str) and _ADDRESS.fullmatch(say(value))):
        raise _NoTextError(
            "a table's cell takes a number, text, None, a tensor, an Image or what has a text of its own; "
            f"got {describe(value)}: log other media by themselves, and pass an iterator as a list"
        )
    return value
