"""Tables: the stored rows hold what was logged, in words that a dashboard can show."""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from PIL import Image
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorClass, TensorDict, lazy_stack

from reading import folder, new_name, rows, series
from servers import TOKEN, Server
from torchrl_trackio import TrackioLogger, TrackioWarning


def stored(logger: TrackioLogger, table: Any) -> list[dict[str, Any]]:
    """The rows of a table that is logged, each in the order of its columns."""
    name = new_name()
    logger.log_table(name, table, step=1)
    logger.flush()
    ((_, value),) = series(logger.log_dir, name)
    assert value.keys() == {"_type", "_value"}
    assert value["_type"] == "trackio.table"
    assert len({tuple(row) for row in value["_value"]}) <= 1  # the first row's names are those of all
    return value["_value"]


AB = [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.25}]
BATCH = TensorDict(
    {
        "reward": torch.tensor([[0.1], [0.2]]),
        "next": {"obs": torch.tensor([[1.0, 2.5], [3.0, math.nan]]), "pixels": torch.zeros(2, 3, 8, 8)},
        "done": torch.tensor([False, True]),
        "prompt": NonTensorStack("p", "q"),
        "policy": NonTensorData("ppo", [2]),
    },
    [2],
)
BATCH_ROWS = [
    {
        "reward": 0.1,
        "next/obs": "[1.0, 2.5]",
        "next/pixels": "Tensor of shape (3, 8, 8) and dtype torch.float32",
        "done": False,
        "prompt": "p",
        "policy": "ppo",
    },
    {
        "reward": 0.2,
        "next/obs": "[3.0, nan]",
        "next/pixels": "Tensor of shape (3, 8, 8) and dtype torch.float32",
        "done": True,
        "prompt": "q",
        "policy": "ppo",
    },
]


class Sample(TensorClass):
    """A tensorclass with tensors of any length."""

    x: torch.Tensor
    note: str | None = None


def agents(first: dict[str, int], second: dict[str, int], *size: int) -> TensorDict:
    """A rollout of two agents, each of entries with so many zeros a step."""
    parts = (TensorDict({name: torch.zeros(*size, n) for name, n in part.items()}, size) for part in (first, second))
    stack = LazyStackedTensorDict(*parts, stack_dim=len(size))
    return TensorDict({"agents": stack, "reward": torch.arange(math.prod(size)).reshape(*size, 1)}, size)


OTHER_SHAPES = {"agents/0/x": "[0.0, 0.0]", "agents/1/x": "[0.0, 0.0, 0.0]", "agents/action": "[[0.0], [0.0]]"}
OTHER_KEYS = {"agents/x": "[[0.0, 0.0], [0.0, 0.0]]", "agents/0/action": 0.0, "agents/1/move": 0.0}
TABLES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "columns of lists": ({"a": [1, 2], "b": [0.5, 0.25]}, AB),
    "columns of tensors": ({"a": torch.tensor([1, 2]), "b": torch.tensor([0.5, 0.25])}, AB),
    "columns of arrays": ({"a": np.array([1, 2]), "b": np.array([0.5, 0.25])}, AB),
    "columns of (N, 1)": ({"a": torch.tensor([[1], [2]]), "b": np.array([[0.5], [0.25]])}, AB),
    "column that counts": ({"a": range(1, 3), "b": (0.5, 0.25)}, AB),
    "a value for all rows": (
        {"a": [1, 2], "b": "x", "c": None, "d": torch.tensor(3)},
        [{"a": 1, "b": "x", "c": None, "d": 3}, {"a": 2, "b": "x", "c": None, "d": 3}],
    ),
    "values only": ({"a": 1, "b": 0.5}, AB[:1]),
    "nested columns": ({"a": {"b": [1, 2], ("c", "d"): [3, 4]}}, [{"a/b": 1, "a/c/d": 3}, {"a/b": 2, "a/c/d": 4}]),
    "names that are no text": ({1: [5], ("x", 2): [6]}, [{"1": 5, "x/2": 6}]),
    "rows of mappings": (AB, AB),
    "rows of tensordicts": ([TensorDict(row) for row in AB], AB),
    "rows that lack something": (
        [{"a": 1}, {"b": {"c": 2}}, {"a": 3, "b": {"c": 4}}],
        [{"a": 1, "b/c": None}, {"a": None, "b/c": 2}, {"a": 3, "b/c": 4}],
    ),
    "rows of sequences": ([[1, 0.5], (2, None)], [{"0": 1, "1": 0.5}, {"0": 2, "1": None}]),
    "rows of tensors": ([torch.tensor([1, 2]), np.array([3, 4])], [{"0": 1, "1": 2}, {"0": 3, "1": 4}]),
    "2-d tensor": (torch.tensor([[0.1, 0.2], [0.3, 0.4]]), [{"0": 0.1, "1": 0.2}, {"0": 0.3, "1": 0.4}]),
    "2-d array": (np.array([[1, 2], [3, 4]]), [{"0": 1, "1": 2}, {"0": 3, "1": 4}]),
    "twelve columns": (torch.arange(12)[None], [{str(index): index for index in range(12)}]),
    "tensordict": (BATCH, BATCH_ROWS),
    "tensordict with two batch dimensions": (torch.stack([BATCH, BATCH], 1), [BATCH_ROWS[i] for i in (0, 0, 1, 1)]),
    "tensordict without batch": (BATCH[1], BATCH_ROWS[1:]),
    "lazy stack": (lazy_stack([BATCH[0], BATCH[1]]), BATCH_ROWS),
    "lazy stack of different keys": (
        lazy_stack([TensorDict({"a": 1, "b": torch.zeros(2)}), TensorDict({"a": 2, "c": torch.ones(3)})]),
        [{"a": 1, "b": "[0.0, 0.0]", "c": None}, {"a": 2, "b": None, "c": "[1.0, 1.0, 1.0]"}],
    ),
    "lazy stack of different lengths": (
        lazy_stack([TensorDict({"a": torch.arange(size)}, [size]) for size in (2, 1)]),
        [{"a": 0}, {"a": 1}, {"a": 0}],
    ),
    "lazy stack of tensorclasses": (
        lazy_stack([Sample(torch.zeros(2), "p"), Sample(torch.ones(3))]),
        [{"x": "[0.0, 0.0]", "note": "p"}, {"x": "[1.0, 1.0, 1.0]", "note": None}],
    ),
    "nested lazy stack of tensorclasses": (
        TensorDict({"s": lazy_stack([Sample(torch.zeros(2), "p"), Sample(torch.ones(3))])}, [2]),
        [{"s/x": "[0.0, 0.0]", "s/note": "p"}, {"s/x": "[1.0, 1.0, 1.0]", "s/note": None}],
    ),
    "nested lazy stack of different shapes": (
        TensorDict({"o": lazy_stack([TensorDict({"x": torch.zeros(size)}) for size in (1, 2)]), "r": [5, 6]}, [2]),
        [{"o/x": 0.0, "r": 5}, {"o/x": "[0.0, 0.0]", "r": 6}],
    ),
    "nested lazy stack of different keys": (
        TensorDict({"o": lazy_stack([TensorDict({"a": 1}), TensorDict({"b": NonTensorData("x")})]), "r": [5, 6]}, [2]),
        [{"o/a": 1, "o/b": None, "r": 5}, {"o/a": None, "o/b": "x", "r": 6}],
    ),
    "nested lazy stack of a tensor and a tensordict": (
        TensorDict({"o": lazy_stack([TensorDict({"a": 1}), TensorDict({"a": {"b": 2}})])}, [2]),
        [{"o/a": 1, "o/a/b": None}, {"o/a": None, "o/a/b": 2}],
    ),
    "agents of different shapes": (
        agents({"x": 2, "action": 1}, {"x": 3, "action": 1}, 2),
        [{**OTHER_SHAPES, "reward": 0}, {**OTHER_SHAPES, "reward": 1}],
    ),
    "agents of different keys": (
        agents({"x": 2, "action": 1}, {"x": 2, "move": 1}, 2),
        [{**OTHER_KEYS, "reward": 0}, {**OTHER_KEYS, "reward": 1}],
    ),
    "agents with two batch dimensions": (
        agents({"x": 2, "action": 1}, {"x": 2, "move": 1}, 2, 2),
        [{**OTHER_KEYS, "reward": index} for index in range(4)],
    ),
    "agents in a row": (
        [{"n": 1, **agents({"x": 2, "action": 1}, {"x": 3, "action": 1})}],
        [{"n": 1, **OTHER_SHAPES, "reward": 0}],
    ),
    "agents in a column": (
        {"n": [1, 2], "agents": agents({"x": 2, "action": 1}, {"x": 3, "action": 1}, 2)["agents"]},
        [{"n": 1, **OTHER_SHAPES}, {"n": 2, **OTHER_SHAPES}],
    ),
    "empty tensordict": (TensorDict({"a": torch.zeros(0)}, [0]), []),
    "empty tensordict with two batch dimensions": (TensorDict({"a": torch.zeros(2, 0, 3)}, [2, 0]), []),
    "empty lazy stack": (lazy_stack([TensorDict({"a": torch.zeros(0)}, [0]), TensorDict(batch_size=[0])]), []),
    "columns of views": ({"a": {1: 0.5, 2: 0.25}.keys(), "b": {1: 0.5, 2: 0.25}.values()}, AB),
    "rows of a view": ({"first": AB[0], "second": AB[1]}.values(), AB),
    "items": ({"x": 1, "y": 2}.items(), [{"0": "x", "1": 1}, {"0": "y", "1": 2}]),
    "Trackio's own": (trackio.Table(["x"], [[1], ["two"]]), [{"x": 1}, {"x": "two"}]),
    "no rows": ({"a": []}, []),
    "nothing": ([], []),
}


@pytest.mark.parametrize(("table", "expected"), TABLES.values(), ids=TABLES)
def test_every_kind_of_table(shared: TrackioLogger, table: Any, expected: list[dict[str, Any]]) -> None:
    """The rows and the order of the columns are those of the table."""
    found = stored(shared, table)
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]


class Color(enum.Enum):
    """A value with a text."""

    RED = 1


CELLS: dict[str, tuple[Any, Any]] = {
    "int": (3, 3),
    "bool": (True, True),
    "None": (None, None),
    "text": ("a ⚑ <b>", "a ⚑ <b>"),
    "numpy text": (np.str_("text"), "text"),
    "numpy number": (np.float32(0.1), 0.1),
    "numpy bool": (np.bool_(True), True),
    "0-d tensor": (torch.tensor(0.1), 0.1),
    "bfloat16": (torch.tensor(0.1, dtype=torch.bfloat16), 0.1),
    "float16": (torch.tensor(0.1, dtype=torch.float16), 0.1),
    "float8": (torch.tensor(0.1).to(torch.float8_e4m3fn), 0.1),
    "longdouble": (np.longdouble(0.1), 0.1),
    "float64": (torch.tensor(0.1, dtype=torch.float64), 0.1),
    "requires grad": (torch.nn.Parameter(torch.tensor([0.25])), 0.25),
    "negative view": (torch.tensor([1 + 2j]).conj().imag, -2.0),
    "complex": (torch.tensor(1 + 2j), "(1+2j)"),
    "conjugate": (torch.tensor(0.1 + 2j).conj(), "(0.1-2j)"),
    "NaN": (math.nan, "NaN"),
    "NaN tensor": (torch.tensor(math.nan), "NaN"),
    "infinity": (math.inf, "Infinity"),
    "minus infinity": (-np.float32(math.inf), "-Infinity"),
    "2**53": (2**53, 2**53),
    "beyond 2**53": (2**53 + 1, "9007199254740993"),
    "beyond 2**53 in a tensor": (torch.tensor(-(2**60)), "-1152921504606846976"),
    "beyond 2**64": (10**30, "1" + 30 * "0"),
    "tensor": (torch.tensor([[1.0, 0.1], [2.0, 3.0]]), "[[1.0, 0.1], [2.0, 3.0]]"),
    "sixteen numbers": (torch.arange(16), str(list(range(16)))),
    "seventeen numbers": (torch.arange(17), "Tensor of shape (17,) and dtype torch.int64"),
    "large array": (np.zeros((84, 84), np.uint8), "ndarray of shape (84, 84) and dtype uint8"),
    "empty tensor": (torch.zeros(0, 3), "[]"),
    "list": ([1, torch.tensor(0.1), "x"], "[1, 0.1, 'x']"),
    "empty list": ([], "[]"),
    "mapping": ({"a": torch.tensor([1, 2])}, "{'a': [1, 2]}"),
    "view": ({"a": 0.1, "b": "x"}.values(), "[0.1, 'x']"),
    "text like an address": ("<x at 0x1f>", "<x at 0x1f>"),
    "text like an address in a list": (["<x at 0x1f>"], "['<x at 0x1f>']"),
    "date": (dt.date(2030, 1, 2), "2030-01-02"),
    "numpy date": (np.datetime64("2030-01-02"), "2030-01-02"),
    "path": (Path("a/b"), "a/b"),
    "enum": (Color.RED, "Color.RED"),
    "dtype": (torch.float32, "torch.float32"),
}


@pytest.mark.parametrize(("cell", "expected"), CELLS.values(), ids=CELLS)
def test_every_kind_of_cell(shared: TrackioLogger, cell: Any, expected: Any) -> None:
    """Numbers as short as they can be told apart, what is not finite as a word, the rest as text."""
    ((value,),) = (row.values() for row in stored(shared, {"cell": [cell]}))
    assert value == expected
    assert type(value) is type(expected)


COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "float32": (torch.tensor([0.1, math.nan, -math.inf]), [0.1, "NaN", "-Infinity"]),
    "float64": (np.array([0.1, math.nan]), [0.1, "NaN"]),
    "bfloat16": (torch.tensor([0.1, 1e30], dtype=torch.bfloat16), [0.1, 1e30]),
    "float16": (torch.tensor([0.1, 65504.0], dtype=torch.float16), [0.1, 65500.0]),
    "float16 vectors": (torch.tensor([[0.1, 0.2]], dtype=torch.float16), ["[0.1, 0.2]"]),
    "longdouble": (np.array([0.1, 0.2], np.longdouble), [0.1, 0.2]),
    "complex": (torch.tensor([1 + 2j, 0.1]), ["(1+2j)", "(0.1+0j)"]),
    "complex128": (torch.tensor([0.1 + 2j], dtype=torch.complex128), ["(0.1+2j)"]),
    "big-endian": (np.array([1, 2], ">i4"), [1, 2]),
    "bool": (torch.tensor([True, False]), [True, False]),
    "int64": (torch.tensor([1, 2**60]), [1, "1152921504606846976"]),
    "uint64": (np.array([2**64 - 1], np.uint64), ["18446744073709551615"]),
    "text": (np.array(["a", "b"]), ["a", "b"]),
    "objects": (np.array([None, "x", 1.5], object), [None, "x", 1.5]),
    "dates": (np.array(["2030-01-02"], "M8[D]"), ["2030-01-02"]),
    "vectors": (torch.tensor([[1, 2], [3, 4]]), ["[1, 2]", "[3, 4]"]),
    "empty vectors": (torch.zeros(2, 0), ["[]", "[]"]),
    "requires grad": (torch.tensor([0.1, 0.2], requires_grad=True), [0.1, 0.2]),
    "mixed": ([1, "x", None, torch.tensor([1, 2])], [1, "x", None, "[1, 2]"]),
    "texts in a tuple": (("ab", "cd"), ["ab", "cd"]),
}


@pytest.mark.parametrize(("column", "expected"), COLUMNS.values(), ids=COLUMNS)
def test_every_kind_of_column(shared: TrackioLogger, column: Any, expected: list[Any]) -> None:
    """A column's cells are what they are one by one."""
    found = [row["c"] for row in stored(shared, {"c": column})]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_numbers_of_half_precision(shared: TrackioLogger) -> None:
    """They are texts as those of other precisions, in a column and in a cell."""
    numbers = torch.tensor([0.1 + 2j, 3 - 0.5j]).to(torch.complex32)
    assert stored(shared, {"plain": numbers, "conjugate": numbers.conj(), "cell": [numbers, numbers[0]]}) == [
        {"plain": "(0.1+2j)", "conjugate": "(0.1-2j)", "cell": "['(0.1+2j)', '(3-0.5j)']"},
        {"plain": "(3-0.5j)", "conjugate": "(3+0.5j)", "cell": "(0.1+2j)"},
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_table_on_a_gpu(shared: TrackioLogger) -> None:
    """Cells are copied from the device."""
    assert stored(shared, BATCH.to("cuda")) == BATCH_ROWS


def test_cells_may_be_images(shared: TrackioLogger) -> None:
    """One, or several in a cell; the objects may be used again, elsewhere, too."""
    images = [trackio.Image(np.full((4, 6, 3), shade, np.uint8), caption=str(shade)) for shade in (10, 20)]
    for _ in range(2):
        first, second = stored(shared, {"n": [1, 2], "i": images, "both": [images, None]})
        assert (first["n"], second["n"], second["both"]) == (1, 2, None)
        found = [first["i"], second["i"], *first["both"]]
        assert [(cell["_type"], cell["caption"]) for cell in found] == 2 * [
            ("trackio.image", "10"),
            ("trackio.image", "20"),
        ]
        for cell, shade in zip(found, (10, 20, 10, 20), strict=True):
            with Image.open(folder() / "media" / cell["file_path"]) as image:
                assert image.convert("RGB").getcolors() == [(24, (shade, shade, shade))]
        assert len({cell["file_path"] for cell in found}) == 4


FRAMES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "numbers": ("pd.DataFrame({'a': [1, 2], 'b': np.float32([0.5, 0.1])})", [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.1}]),
    "missing values": (
        "pd.DataFrame({'t': ['x', None], 'i': pd.array([1, None], dtype='Int64'), 'd': [pd.Timestamp(0), pd.NaT]})",
        [{"t": "x", "i": 1, "d": "1970-01-01 00:00:00"}, {"t": None, "i": None, "d": None}],
    ),
    "NaN": ("pd.DataFrame({'a': [np.nan, 1.0]})", [{"a": "NaN"}, {"a": 1.0}]),
    "categories": ("pd.DataFrame({'a': pd.Categorical(['u', 'v'])})", [{"a": "u"}, {"a": "v"}]),
    "named index": (
        "pd.DataFrame({'a': [1, 2]}, index=pd.Index(['p', 'q'], name='run'))",
        [{"run": "p", "a": 1}, {"run": "q", "a": 2}],
    ),
    "part of a frame": ("pd.DataFrame({'a': [1, 2, 3]})[1:]", [{"index": 1, "a": 2}, {"index": 2, "a": 3}]),
    "several levels": (
        "pd.DataFrame({'g': [1, 1], 'x': [2, 4]}).groupby('g').agg({'x': ['min', 'max']})",
        [{"g": 1, "x/min": 2, "x/max": 4}],
    ),
    "column of a mapping": ("{'a': pd.Series([1, 2], index=[5, 6]), 'b': 0}", [{"a": 1, "b": 0}, {"a": 2, "b": 0}]),
    "empty": ("pd.DataFrame({'a': []})", []),
}


@pytest.mark.parametrize(("code", "expected"), FRAMES.values(), ids=FRAMES)
def test_dataframes(shared: TrackioLogger, code: str, expected: list[dict[str, Any]]) -> None:
    """Columns keep their types and what is missing; an index that says something is a column."""
    pd = pytest.importorskip("pandas")
    assert stored(shared, eval(code, {"pd": pd, "np": np})) == expected


@pytest.mark.parametrize(
    "code",
    [
        "pd.DataFrame([[1, 2]], columns=['a', 'a'])",
        "pd.DataFrame({'a': [1]}, index=pd.Index(['p'], name='a'))",
        "pd.DataFrame({'a': [1]}, index=pd.MultiIndex.from_tuples([(2, 3)], names=['b', 'a']))",
    ],
    ids=["columns", "index", "one of the indexes"],
)
def test_a_frame_with_two_columns_of_one_name_is_refused(shared: TrackioLogger, code: str) -> None:
    """One of them would be lost; an index is a column, too."""
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"^two columns of a table would both be named 'a': rename one of them$"):
        shared.log_table("t", eval(code, {"pd": pd}))


def test_a_table_may_be_changed_after_the_call(shared: TrackioLogger) -> None:
    """One buffer serves for many tables."""
    buffer, column = torch.tensor([1.0, 2.0]), [[1], [2]]
    shared.log_table("buffer", {"a": buffer, "b": column}, step=1)
    buffer.zero_()
    column[0].append(5)
    shared.flush()
    ((_, value),) = series(shared.log_dir, "buffer")
    assert value["_value"] == [{"a": 1.0, "b": "[1]"}, {"a": 2.0, "b": "[2]"}]


def test_a_table_shares_the_row_of_its_step(logger: TrackioLogger, project: str) -> None:
    """It is one value of the step, counted on like any other."""
    logger.log_scalar("x", 1.0, step=3)
    logger.log_table("t", [[1]], step=3)
    logger.log_table("t", [[2]])
    logger.flush()
    table = {"_type": "trackio.table"}
    assert rows(project) == [
        (3, {"x": 1.0, "t": {**table, "_value": [{"0": 1}]}}),
        (4, {"t": {**table, "_value": [{"0": 2}]}}),
    ]


def test_a_server_stores_the_same_table(tmp_path: Path, project: str) -> None:
    """Also what JSON has no number for, and images."""
    server = Server(tmp_path)
    server.start()
    try:
        with TrackioLogger("run", project, server_url=f"{server.url}/?write_token={TOKEN}") as logger:
            image = trackio.Image(np.zeros((4, 4, 3), np.uint8))
            logger.log_table("t", {"a": torch.tensor([math.nan, math.inf, 0.1]), "i": [image, None, None]})
        ((row),) = server.rows(project)
        first, *rest = row["t"]["_value"]
        assert rest == [{"a": "Infinity", "i": None}, {"a": 0.1, "i": None}]
        assert first["a"] == "NaN"
        assert (tmp_path / "media" / first["i"]["file_path"]).is_file()
    finally:
        server.kill()


def test_a_table_of_many_rows_is_stored_with_a_warning(shared: TrackioLogger) -> None:
    """All rows are there; that the dashboard needs long for them is said once."""
    with pytest.warns(TrackioWarning, match="is slow with more than 10,000"):
        found = stored(shared, {"a": torch.arange(10_001)})
    assert found == [{"a": index} for index in range(10_001)]


KINDS = (
    "a table must be a tensordict, a mapping of columns, a sequence of rows (all mappings or all sequences), a tensor "
    "or array with two dimensions, a pandas DataFrame or a trackio.Table, got"
)
DENSE = "a table takes dense tensors with values, got Tensor"
CELL = "a table's cell takes a number, text, None, a tensor, an Image or what has a text of its own; got"


class Unspeakable:
    """What raises when asked for its text."""

    def __str__(self) -> str:
        raise KeyError("no text")


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "lengths": (
        {"a": [1], "b": torch.zeros(2), "c": 0},
        ValueError,
        "the columns of a table must have one length, but 'a' has 1, 'b' has 2$",
    ),
    "row lengths": (
        [[1, 2], [3]],
        ValueError,
        re.escape(
            "the rows of a table must have one length, but row 0 has 2 and row 1 has 1: fill up with None, or pass"
        ),
    ),
    "one name twice": (
        {"a/b": [1], "a": {"b": [2]}},
        ValueError,
        "two columns of a table would both be named 'a/b': rename one of them$",
    ),
    "name of no Unicode": ({"\ud800": [1]}, ValueError, "a column's name must be valid Unicode"),
    "text of no Unicode": ({"a": ["\ud800"]}, ValueError, "text must be valid Unicode"),
    "number": (5, TypeError, re.escape(f"{KINDS} 5 (int)")),
    "text": ("text", TypeError, re.escape(f"{KINDS} 'text' (str)")),
    "None": (None, TypeError, re.escape(f"{KINDS} None (NoneType)")),
    "numbers": ([1, 2], TypeError, re.escape(f"{KINDS} [1, 2] (list)")),
    "texts": (NonTensorStack("a", "b"), TypeError, re.escape(f"{KINDS} ['a', 'b'] (list)")),
    "1-d tensor": (torch.zeros(3), TypeError, re.escape(f"{KINDS} Tensor of shape (3,) and dtype torch.float32")),
    "different rows": ([[1], {"a": 1}], TypeError, re.escape(f"{KINDS} [[1], {{'a': 1}}] (list)")),
    "object": ({"a": [object()]}, TypeError, re.escape(f"{CELL} <object object at")),
    "object in a list": ({"a": [[1, object()]]}, TypeError, re.escape(f"{CELL} <object object at")),
    "function": ({"a": [lambda: 0]}, TypeError, re.escape(f"{CELL} <function <lambda> at")),
    "generator": ((row for row in AB), TypeError, re.escape(f"{KINDS} <generator object")),
    "generator as a column": ({"a": (number for number in (1, 2))}, TypeError, re.escape(f"{CELL} <generator object")),
    "iterator as a column": ({"a": itertools.count()}, TypeError, re.escape(f"{CELL} count(0) (count): log other")),
    "iterator in a cell": ([{"a": [map(str, (1, 2))]}], TypeError, re.escape(f"{CELL} <map object")),
    "other media": ({"a": [trackio.Html("x")]}, TypeError, re.escape(CELL)),
    "text that raises": ({"a": [Unspeakable()]}, TypeError, "the text of a Unspeakable .* cannot be had: KeyError"),
    "meta column": (
        {"a": torch.zeros(2, device="meta")},
        TypeError,
        DENSE,
    ),
    "sparse cell": (
        [{"a": torch.zeros(2).to_sparse()}],
        TypeError,
        DENSE,
    ),
}


@pytest.mark.parametrize(("table", "error", "message"), BAD.values(), ids=BAD)
def test_bad_tables_are_refused_at_the_call(
    logger: TrackioLogger, project: str, table: Any, error: type[Exception], message: str
) -> None:
    """The call raises, and says what it got and takes; the step's other values stay, and no count moves."""
    logger.log_scalar("x", 1.0, step=3)
    with pytest.raises(error, match=f"^{message}"):
        logger.log_table("t", table)
    logger.log_scalar("t", 3.0)
    logger.flush()
    assert rows(project) == [(3, {"x": 1.0}), (0, {"t": 3.0})]
