"""Tables: from tensordicts, columns, rows and dataframes to the rows that Trackio stores and the dashboard shows."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import is_non_tensor, is_tensor_collection

from torchrl_trackio.arrays import describe
from torchrl_trackio.cells import VIEWS, to_cell, to_cells
from torchrl_trackio.errors import warn
from torchrl_trackio.leaves import is_lazy, leaves_of
from torchrl_trackio.names import check_text

_MANY_ROWS = 10_000


def to_table(table: Any) -> trackio.Table:
    """A private copy of a table: as for :meth:`TrackioLogger.log_table`.

    Raises:
        TypeError: if the table is of another type, or a cell cannot be shown.
        ValueError: if columns or rows differ in length, or two columns have one name.

    Warns:
        TrackioWarning: over 10,000 rows.
    """
    if isinstance(table, trackio.Table):
        return table
    rows = _rows(table)
    if len(rows) > _MANY_ROWS:
        warn(f"the dashboard draws every row of a table, and is slow with more than {_MANY_ROWS:,}: log fewer at once")
    return trackio.Table(data=rows)


def _rows(table: Any) -> list[dict[str, Any]]:
    if is_non_tensor(table):
        table = table.tolist()
    if is_lazy(table):  # whose elements may differ in their keys and shapes
        return _of_mappings(_elements(table))
    if is_tensor_collection(table):
        return _of_columns(_batch_columns(table))
    if isinstance(table, Mapping):
        return _of_columns((name, _column(value)) for name, value in _leaves(table, 1))
    if _is_dataframe(table):
        return _of_columns(_frame_columns(table))
    if isinstance(table, (torch.Tensor, np.ndarray)) and table.ndim == 2:
        return _of_columns((str(index), to_cells(table[:, index])) for index in range(table.shape[1]))
    if isinstance(table, (Sequence, *VIEWS)) and not isinstance(table, (str, bytes)):
        table = list(table)
        if all(isinstance(row, Mapping) or is_tensor_collection(row) for row in table):
            return _of_mappings(table)
        if all(isinstance(row, (list, tuple)) or getattr(row, "ndim", 0) == 1 for row in table):
            return _of_sequences(table)
    raise TypeError(
        "a table must be a tensordict, a mapping of columns, a sequence of rows (all mappings or all sequences), a "
        f"tensor or array with two dimensions, a pandas DataFrame or a trackio.Table, got {describe(table)}"
    )


def _of_columns(columns: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Rows of (name, cells) pairs; what is no list is one cell for all rows."""
    cells = _named(columns)
    lengths = {name: len(column) for name, column in cells.items() if isinstance(column, list)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"the columns of a table must have one length, but {found}")
    length = next(iter(lengths.values()), 1 if cells else 0)
    filled = [column if isinstance(column, list) else [column] * length for column in cells.values()]
    return [dict(zip(cells, row, strict=True)) for row in zip(*filled, strict=True)]


def _of_mappings(rows: Sequence[Any]) -> list[dict[str, Any]]:
    found = [_named((name, to_cell(value)) for name, value in _leaves(row, 0)) for row in rows]
    names = dict.fromkeys(name for row in found for name in row)
    return [{name: row.get(name) for name in names} for row in found]


def _of_sequences(rows: Sequence[Any]) -> list[dict[str, Any]]:
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"the rows of a table must have one length, but row 0 has {len(rows[0])} and row {index} has "
                f"{len(row)}: fill up with None, or pass mappings"
            )
    found = (to_cells(row) if isinstance(row, (torch.Tensor, np.ndarray)) else map(to_cell, row) for row in rows)
    return [{str(index): cell for index, cell in enumerate(row)} for row in found]


def _named(columns: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, column in columns:
        check_text("a column's name", name)
        if name in named:
            raise ValueError(f"two columns of a table would both be named {name!r}: rename one of them")
        named[name] = column
    return named


def _leaves(table: Any, batch_dims: int, *keys: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) pairs of what is nested, whose first ``batch_dims`` dimensions are the rows."""
    if is_tensor_collection(table):
        items: Iterable[tuple[Any, Any]] = leaves_of(table, min(batch_dims, table.batch_dims))
    else:
        items = table.items()
    for key, value in items:
        path = (*keys, *key) if isinstance(key, tuple) else (*keys, key)
        if is_non_tensor(value):
            yield "/".join(map(str, path)), value.tolist()
        elif isinstance(value, Mapping) or is_tensor_collection(value):
            yield from _leaves(value, batch_dims, *path)
        else:
            yield "/".join(map(str, path)), value


def _column(values: Any) -> Any:
    """A list of cells, or one cell for all rows."""
    if hasattr(values, "__array__") and hasattr(values, "__len__") and not isinstance(values, torch.Tensor):
        values = np.asarray(values)  # a pandas Series, too
    if isinstance(values, (torch.Tensor, np.ndarray)) and values.ndim:
        return to_cells(values)
    if isinstance(values, (Sequence, *VIEWS)) and not isinstance(values, (str, bytes)):
        return [to_cell(value) for value in values]
    return to_cell(values)


def _batch_columns(table: Any) -> Iterator[tuple[str, Any]]:
    for name, values in _leaves(_flat(table), 1):
        yield name, _column(values)


def _flat(table: Any) -> Any:
    return table.reshape(math.prod(table.batch_size))  # numel() of an empty one is 1


def _elements(table: Any) -> Sequence[Any]:
    """Of a lazy stack's batch; where its parts differ in length, part by part."""
    if min(table.batch_size, default=0) < 0:
        return [element for part in table.tensordicts for element in _elements(part)]
    elements: Sequence[Any] = _flat(table).unbind(0)
    return elements


def _is_dataframe(table: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def _frame_columns(frame: Any) -> Iterator[tuple[str, Any]]:
    counts = frame.index.name is None and frame.index.tolist() == list(range(len(frame)))
    for name, column in (frame if counts else frame.reset_index(allow_duplicates=True)).items():
        name = "/".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
            yield name, to_cells(column.to_numpy())
        else:
            cells = zip(column.tolist(), column.isna(), strict=True)
            yield name, [None if missing else to_cell(value) for value, missing in cells]
