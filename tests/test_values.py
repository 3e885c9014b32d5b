"""A value accepted is a value stored; one that is not takes no neighbour with it."""

from __future__ import annotations

import enum
import fractions
import itertools
import math
import re
from collections import OrderedDict
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from PIL import Image
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, lazy_stack
from torchrl.record.loggers import common

from reading import folder, rows
from torchrl_trackio import TrackioLogger

_steps = itertools.count()


class Level(enum.IntEnum):
    """An integer of a subclass."""

    HIGH = 7


class Arraylike:
    """What jax and cupy look like to us."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)


class Broken:
    """Its conversion fails in a way of its own."""

    def __float__(self) -> float:
        raise RuntimeError("on purpose")


@pytest.fixture
def step() -> int:
    """A step that no other test logs to."""
    return next(_steps)


def row_of(logger: TrackioLogger, step: int) -> dict[str, Any]:
    """The one row of a step."""
    logger.flush()
    (row,) = [metrics for at, metrics in rows(logger.experiment.project) if at == step]
    return row


def counted(data: Any, bins: Any = 64, **options: Any) -> dict[str, Any]:
    """A histogram as Trackio stores it."""
    counts, edges = np.histogram(np.asarray(data, dtype=np.float64), bins, **options)
    return {"_type": "trackio.histogram", "bins": edges.tolist(), "values": counts.tolist()}


_inference = torch.inference_mode()(lambda: torch.tensor(1.5))
_DTYPES = {
    str(dtype): (torch.tensor(3).to(dtype), 3.0 if dtype.is_floating_point else 3)
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    )
}
_NUMPY_TYPES = {
    f"numpy {kind.__name__}": (kind(3), 3.0 if issubclass(kind, np.floating) else 3)
    for kind in (
        *(np.float64, np.float32, np.float16, np.longdouble),
        *(np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8),
    )
}
SCALARS: dict[str, tuple[Any, int | float]] = {
    **_DTYPES,
    **_NUMPY_TYPES,
    "float": (1.5, 1.5),
    "int": (3, 3),
    "zero": (0, 0),
    "negative zero": (-0.0, -0.0),
    "True": (True, 1),
    "False": (False, 0),
    "numpy bool": (np.True_, 1),
    "bool tensor": (torch.tensor(True), 1),
    "bool array": (np.array([False]), 0),
    "float32 widened": (torch.tensor(0.1), 0.10000000149011612),
    "requires grad": (torch.tensor(1.5, requires_grad=True), 1.5),
    "in a graph": (torch.ones(2, requires_grad=True).sum(), 2.0),
    "Parameter": (torch.nn.Parameter(torch.tensor([1.5])), 1.5),
    "inference tensor": (_inference(), 1.5),
    "(1, 1) tensor": (torch.full((1, 1), 1.5), 1.5),
    "strided tensor": (torch.arange(9.0)[4::9], 4.0),
    "sparse": (torch.tensor([1.5]).to_sparse(), 1.5),
    "0-d array": (np.array(1.5), 1.5),
    "(1, 1) array": (np.array([[2]]), 2),
    "Decimal": (Decimal("1.1"), 1.1),
    "Fraction": (fractions.Fraction(1, 4), 0.25),
    "IntEnum": (Level.HIGH, 7),
    "NaN": (math.nan, math.nan),
    "infinity": (math.inf, math.inf),
    "-infinity": (-math.inf, -math.inf),
    "NaN tensor": (torch.tensor(math.nan), math.nan),
    "NaN bfloat16": (torch.tensor(math.nan, dtype=torch.bfloat16), math.nan),
    "numpy infinity": (np.float32(-math.inf), -math.inf),
    "largest int": (2**64 - 1, 2**64 - 1),
    "smallest int": (-(2**63), -(2**63)),
    "largest uint64": (np.uint64(2**64 - 1), 2**64 - 1),
    "smallest int64": (torch.tensor(-(2**63)), -(2**63)),
    "beyond a double's integers": (2**53 + 1, 2**53 + 1),
    "smallest float": (5e-324, 5e-324),
    "largest float": (1.7976931348623157e308, 1.7976931348623157e308),
}


@pytest.mark.parametrize(("value", "expected"), SCALARS.values(), ids=SCALARS)
def test_a_number_is_stored_as_that_number(shared: TrackioLogger, step: int, value: Any, expected: float) -> None:
    """Both calls store numbers of every type as the Python number they are; bools as 0 or 1, which are drawn."""
    shared.log_scalar("scalar", value, step=step)
    shared.log_metrics({"metric": value}, step=step)
    assert repr(row_of(shared, step)) == repr({"scalar": expected, "metric": expected})  # repr: True is 1, NaN unequal


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_tensors_are_stored(shared: TrackioLogger, step: int) -> None:
    """Tensors on a GPU, with and without gradient, are copied and stored."""
    on_gpu = torch.arange(4.0, device="cuda", requires_grad=True)
    shared.log_scalar("scalar", on_gpu.sum(), step=step)
    returned = shared.log_metrics({"mean": on_gpu.mean(), "all": on_gpu, "host": torch.tensor(1.0)}, step=step)
    shared.log_histogram("histogram", on_gpu, step=step, bins=2)
    assert returned == {"mean": 1.5, "all": [0.0, 1.0, 2.0, 3.0], "host": 1.0}
    stored = {"scalar": 6.0, "mean": 1.5, "all": counted(range(4)), "host": 1.0, "histogram": counted(range(4), 2)}
    assert row_of(shared, step) == stored


BAD_SCALARS = {
    "text": ("1.0", TypeError, "a scalar must be a real number or a tensor or array with one element, got '1.0' (str)"),
    "None": (
        None,
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got None (NoneType)",
    ),
    "complex": (
        1j,
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got 1j (complex)",
    ),
    "bytes": (
        b"1",
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got b'1' (bytes)",
    ),
    "list": (
        [1.0],
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got [1.0] (list)",
    ),
    "date": (
        date(2026, 1, 2),
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got datetime.date(2026, 1, 2) (date)",
    ),
    "numpy date": (
        np.datetime64("2026-01-02"),
        TypeError,
        "a scalar must be a real number or a tensor or array with one element, got datetime.date(2026, 1, 2) (date)",
    ),
    "two elements": (
        torch.ones(2),
        TypeError,
        "a scalar must have one element, got Tensor of shape (2,) and dtype torch.float32: reduce it (.mean(), "
        ".sum()), or log it with log_histogram or log_metrics",
    ),
    "no element": (
        np.ones((0, 3)),
        TypeError,
        "a scalar must have one element, got ndarray of shape (0, 3) and dtype float64: reduce it (.mean(), .sum()), "
        "or log it with log_histogram or log_metrics",
    ),
    "complex tensor": (
        torch.tensor(1j),
        TypeError,
        "a scalar must be a real number, got Tensor of shape () and dtype torch.complex64",
    ),
    "meta tensor": (
        torch.zeros((), device="meta"),
        TypeError,
        "a scalar must be a real number, got Tensor of shape () and dtype torch.float32, on device meta with layout "
        "torch.strided",
    ),
    "text array": (
        np.array(["a"]),
        TypeError,
        "a scalar must be a real number, got ndarray of shape (1,) and dtype <U1",
    ),
    "too large": (
        2**64,
        ValueError,
        "Trackio stores integers from -2**63 to 2**64 - 1, got 18446744073709551616 (int): log it as float",
    ),
    "too small": (
        -(2**63) - 1,
        ValueError,
        "Trackio stores integers from -2**63 to 2**64 - 1, got -9223372036854775809 (int): log it as float",
    ),
    "no digits": (
        10**5000,
        ValueError,
        "Trackio stores integers from -2**63 to 2**64 - 1, got something without a repr (int): log it as float",
    ),
    "beyond floats": (
        fractions.Fraction(10**400, 3),
        ValueError,
        f"a scalar must fit in a float, got Fraction(1{'0' * 67}... (Fraction): integer division result too large for "
        "a float",
    ),
}


@pytest.mark.parametrize(("value", "error", "message"), BAD_SCALARS.values(), ids=BAD_SCALARS)
def test_log_scalar_refuses_at_the_call(
    shared: TrackioLogger, step: int, value: Any, error: type[Exception], message: str
) -> None:
    """What is no number raises, says what it got and takes, and the step's other values share a row."""
    shared.log_scalar("before", 1.0, step=step)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        shared.log_scalar("bad", value, step=step)
    shared.log_scalar("after", 2.0, step=step)
    assert row_of(shared, step) == {"before": 1.0, "after": 2.0}


MANY = {
    "tensor": (torch.tensor([1.0, 2.0, 4.0]), [1, 2, 4]),
    "(2, 2) tensor": (torch.tensor([[1, 2], [3, 4]]), [1, 2, 3, 4]),
    "grad": (torch.arange(3.0, requires_grad=True), [0, 1, 2]),
    "bfloat16": (torch.ones(3, dtype=torch.bfloat16), [1, 1, 1]),
    "bool tensor": (torch.tensor([True, False, True]), [1, 0, 1]),
    "array": (np.array([1.0, 2.0]), [1, 2]),
    "longdouble array": (np.ones(2, np.longdouble), [1, 1]),
    "list": ([1.0, 2.0], [1, 2]),
    "tuple": ((1, 2), [1, 2]),
    "nested list": ([[1, 2], [3, 4]], [1, 2, 3, 4]),
    "list of tensors": ([torch.tensor(1.0), torch.tensor([2.0])], [1, 2]),
    "list of numpy numbers": ([np.float32(0.5), np.int64(2)], [0.5, 2]),
    "array-like": (Arraylike(1, 2), [1, 2]),
    "NaN inside": (torch.tensor([1.0, math.nan, 2.0, -math.inf]), [1, 2]),
}


@pytest.mark.parametrize(("value", "numbers"), MANY.values(), ids=MANY)
def test_several_numbers_are_stored_as_a_histogram(
    shared: TrackioLogger, step: int, value: Any, numbers: list[float]
) -> None:
    """Trackio draws no lists, so log_metrics stores tensors, arrays and lists of several numbers as histograms."""
    shared.log_metrics({"many": value, "one": 1.0}, step=step)
    assert row_of(shared, step) == {"many": counted(numbers), "one": 1.0}


ONE = {
    "list": [1.5],
    "tuple": (1.5,),
    "nested": [[1.5]],
    "list of a tensor": [torch.tensor(1.5)],
    "like": Arraylike(1.5),
}


@pytest.mark.parametrize("value", ONE.values(), ids=ONE)
def test_a_list_of_one_number_is_that_number(shared: TrackioLogger, step: int, value: Any) -> None:
    """Lists and array-likes with one element are stored as numbers, as tensors with one are."""
    shared.log_metrics({"one": value}, step=step)
    assert row_of(shared, step) == {"one": 1.5}


@pytest.mark.parametrize("value", [torch.zeros(0), np.zeros((0, 2)), [], ()], ids=["tensor", "array", "list", "tuple"])
def test_no_numbers_are_an_empty_histogram(shared: TrackioLogger, step: int, value: Any) -> None:
    """An empty value is stored, too, and its neighbours with it."""
    shared.log_metrics({"none": value, "one": 1.0}, step=step)
    assert row_of(shared, step) == {"none": {"_type": "trackio.histogram", "bins": [], "values": []}, "one": 1.0}


def metrics_to_return() -> dict[Any, Any]:
    """Values of every kind."""
    return {
        "number": 1.5,
        "bool": True,
        "scalar": torch.tensor(2.0, requires_grad=True),
        "one": torch.tensor([3]),
        "flag": torch.tensor(True),
        "many": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "list": [1.0, 2.0],
        "text": "hello",
        "none": None,
        ("agents", "reward"): torch.tensor(5.0),
    }


def test_log_metrics_returns_what_torchrl_does(shared: TrackioLogger, step: int) -> None:
    """The returned mapping has tensors as numbers or lists and all else as it was, as torchrl's own has."""
    returned = shared.log_metrics(metrics_to_return(), step=step)
    assert returned == {
        "number": 1.5,
        "bool": True,
        "scalar": 2.0,
        "one": 3,
        "flag": True,
        "many": [[1.0, 2.0], [3.0, 4.0]],
        "half": [1.0, 1.0],
        "list": [1.0, 2.0],
        "text": "hello",
        "none": None,
        ("agents", "reward"): 5.0,
    }
    if hasattr(common, "_make_metrics_safe"):  # torchrl >= 0.12
        assert returned == common._make_metrics_safe(metrics_to_return())
    shared.flush()


def tensordict_to_return() -> TensorDict:
    """Nested, with a batch size and text."""
    inner = {"loss": torch.tensor([1.0, 2.0]), "text": NonTensorData("hello", batch_size=[2])}
    return TensorDict({"a": torch.ones(2, 1), "b": inner, "c": {"d": {"e": torch.tensor([3, 4])}}}, [2])


@pytest.mark.parametrize("keys_sep", ["/", ".", "::"])
def test_a_tensordict_is_stored_by_its_flat_names(shared: TrackioLogger, step: int, keys_sep: str) -> None:
    """Nested entries of a tensordict are joined by keys_sep, and returned as torchrl's own log_metrics does."""
    returned = shared.log_metrics(tensordict_to_return(), step=step, keys_sep=keys_sep)
    inner, deep = (keys_sep.join(names) for names in (("b", "loss"), ("c", "d", "e")))
    text = keys_sep.join(("b", "text"))
    assert returned == {"a": [[1.0], [1.0]], inner: [1.0, 2.0], text: "hello", deep: [3, 4]}
    if hasattr(common, "_make_metrics_safe"):
        assert returned == common._make_metrics_safe(tensordict_to_return(), keys_sep=keys_sep)
    markdown = {"_type": "trackio.markdown", "_value": "hello"}
    assert row_of(shared, step) == {"a": counted([1, 1]), inner: counted([1, 2]), text: markdown, deep: counted([3, 4])}


def agents(first: dict[str, int], second: dict[str, int]) -> TensorDict:
    """A rollout of two steps and two agents, each of entries with so many ones a step."""
    parts = (TensorDict({name: torch.ones(2, n) for name, n in part.items()}, [2]) for part in (first, second))
    return TensorDict({"agents": LazyStackedTensorDict(*parts, stack_dim=1)}, [2])


STACKS: dict[str, tuple[Any, dict[str, int]]] = {
    "agents alike": (agents({"x": 2}, {"x": 2}), {"agents/x": 8}),
    "agents of different shapes": (
        agents({"x": 2, "action": 1}, {"x": 3, "action": 1}),
        {"agents/0/x": 4, "agents/1/x": 6, "agents/action": 4},
    ),
    "agents of different keys": (
        agents({"x": 2, "action": 1}, {"x": 2, "move": 1}),
        {"agents/x": 8, "agents/0/action": 2, "agents/1/move": 2},
    ),
    "batch of different shapes": (lazy_stack([TensorDict({"x": torch.ones(n)}) for n in (2, 3)]), {"x": 5}),
    "batch of different keys": (
        lazy_stack([TensorDict({"x": torch.ones(2)}), TensorDict({"y": torch.ones(3)})]),
        {"x": 2, "y": 3},
    ),
    "steps with different agents": (
        lazy_stack([agents({"x": 2}, {"x": 3, "y": 1})[0] for _ in range(3)]),
        {"agents/0/x": 6, "agents/1/x": 9, "agents/1/y": 3},
    ),
}


@pytest.mark.parametrize(("metrics", "counts"), STACKS.values(), ids=STACKS)
def test_parts_of_a_lazy_stack_that_differ(
    shared: TrackioLogger, step: int, metrics: Any, counts: dict[str, int]
) -> None:
    """What differs along the batch is one histogram, what differs between agents one of each; all else is stored."""
    returned = shared.log_metrics({"loss": 2.0, "td": metrics}, step=step)
    assert {name: torch.tensor(numbers).sum() for name, numbers in returned.items()} == {
        "loss": 2.0,
        **{f"td/{name}": count for name, count in counts.items()},
    }
    expected = {f"td/{name}": counted(count * [1]) for name, count in counts.items()}
    assert row_of(shared, step) == {"loss": 2.0, **expected}


def test_a_lazy_stack_of_numbers_and_texts(shared: TrackioLogger, step: int) -> None:
    """What is neither is refused by its name, and takes no neighbour with it."""
    mixed = lazy_stack([TensorDict({"a": torch.ones(3), "b": 1.0}), TensorDict({"a": NonTensorData("x"), "b": 2.0})])
    with pytest.raises(TypeError, match=r"^'td/a': expected .*numbers .*, got \[.*, 'x'\] \(list\)"):
        shared.log_metrics({"loss": 2.0, "td": mixed}, step=step)
    assert row_of(shared, step) == {"loss": 2.0, "td/b": counted([1, 2])}


NESTED = {
    "dict": ({"a": {"b": 1.0, "c": {"d": 2.0}}}, {"a/b": 1.0, "a/c/d": 2.0}),
    "OrderedDict": ({"a": OrderedDict(b=1.0)}, {"a/b": 1.0}),
    "empty": ({"a": {}, "b": 1.0}, {"b": 1.0}),
    "tensordict": ({"a": TensorDict({"b": torch.tensor(1.0)})}, {"a/b": 1.0}),
    "tuple": ({("a", "b", "c"): 1.0, ("d",): 2.0}, {"a/b/c": 1.0, "d": 2.0}),
    "tuple inside": ({"a": {("b", "c"): 1.0}}, {"a/b/c": 1.0}),
    "numbered": ({"agent": {0: 1.0, 1: 2.0}}, {"agent/0": 1.0, "agent/1": 2.0}),
}


@pytest.mark.parametrize(("metrics", "expected"), NESTED.values(), ids=NESTED)
def test_nested_names_are_joined(
    shared: TrackioLogger, step: int, metrics: dict[Any, Any], expected: dict[str, float]
) -> None:
    """Nested mappings, tensordicts and torchrl's tuple keys become one flat row."""
    shared.log_metrics(metrics, step=step)
    assert row_of(shared, step) == expected


def test_keys_sep_joins_every_kind_of_nesting(shared: TrackioLogger, step: int) -> None:
    """Another separator is used for mappings and tuple keys alike."""
    metrics = {"a": {"b": 1.0, ("c", "d"): 2.0}, ("e", "f"): 3.0}
    returned = shared.log_metrics(metrics, step=step, keys_sep=".")
    assert returned == {"a.b": 1.0, "a.c.d": 2.0, ("e", "f"): 3.0}
    assert row_of(shared, step) == {"a.b": 1.0, "a.c.d": 2.0, "e.f": 3.0}


TAKES = "a metric must be a number, several numbers (tensor, array, list), text or a Trackio object"
BAD_METRICS = {
    "complex": (1j, TypeError, f"{TAKES}, got 1j (complex)"),
    "bytes": (b"x", TypeError, f"{TAKES}, got b'x' (bytes)"),
    "object": (Path("x"), TypeError, f"{TAKES}, got {Path('x')!r} ({type(Path()).__name__})"),
    "function": (len, TypeError, f"{TAKES}, got <built-in function len> (builtin_function_or_method)"),
    "range": (range(3), TypeError, f"{TAKES}, got range(0, 3) (range)"),
    "set": (
        {1},
        TypeError,
        "a metric must be a number, several numbers, text or a Trackio object, got {1} (set)",
    ),
    "list of text": (
        ["a", "b"],
        TypeError,
        "expected real numbers (tensor, array or sequence), got ['a', 'b'] (list) of <U1",
    ),
    "list with None": (
        [1.0, None],
        TypeError,
        "expected real numbers (tensor, array or sequence), got [1.0, None] (list) of object",
    ),
    "list of images": (
        [trackio.Image(np.zeros((2, 2, 3), np.uint8))],
        TypeError,
        "expected real numbers (tensor, array or sequence), got [<trackio.media.image.TrackioImage object at 0x...",
    ),
    "long text is cut": (
        [None] * 100,
        TypeError,
        f"expected real numbers (tensor, array or sequence), got {repr([None] * 100)[:77]}... (list) of object",
    ),
    "complex tensor": (
        torch.ones(2, dtype=torch.complex64),
        TypeError,
        "a histogram takes real numbers, got Tensor of shape (2,) and dtype torch.complex64",
    ),
    "meta tensor": (
        torch.ones(2, device="meta"),
        TypeError,
        "a histogram takes real numbers, got Tensor of shape (2,) and dtype torch.float32, on device meta with layout "
        "torch.strided",
    ),
    "sparse tensor": (
        torch.eye(2).to_sparse(),
        TypeError,
        "a histogram takes real numbers, got Tensor of shape (2, 2) and dtype torch.float32, on device cpu with layout "
        "torch.sparse_coo",
    ),
    "object array": (
        np.array([1, None]),
        TypeError,
        "expected real numbers (tensor, array or sequence), got ndarray of shape (2,) and dtype object of object",
    ),
    "signalling NaN": (Decimal("sNaN"), ValueError, "cannot convert signaling NaN to float"),
    "raises": (Broken(), TypeError, "on purpose"),
    "too large": (
        2**64,
        ValueError,
        "Trackio stores integers from -2**63 to 2**64 - 1, got 18446744073709551616 (int): log it as float",
    ),
    "too large in a list": (
        [2**64, 1],
        TypeError,
        "expected real numbers (tensor, array or sequence), got [18446744073709551616, 1] (list) of object",
    ),
    "Trackio's, but no metric": (trackio.Run, TypeError, f"{TAKES}, got {trackio.Run!r} (type)"),
}


@pytest.mark.parametrize(("value", "error", "message"), BAD_METRICS.values(), ids=BAD_METRICS)
def test_log_metrics_refuses_one_value_and_stores_the_others(
    shared: TrackioLogger, step: int, value: Any, error: type[Exception], message: str
) -> None:
    """A bad value raises with its name; those beside it and those of the step before and after share a row."""
    shared.log_scalar("before", 1.0, step=step)
    with pytest.raises(error) as raised:
        shared.log_metrics({"left": 2.0, "bad": value, "right": torch.tensor(3.0)}, step=step)
    shared.log_metrics({"after": 4.0}, step=step)
    assert re.sub(r"0x\w+.*", "0x...", str(raised.value)) == f"'bad': {message}"
    assert row_of(shared, step) == {"before": 1.0, "left": 2.0, "right": 3.0, "after": 4.0}


def test_all_bad_values_are_named_at_once(shared: TrackioLogger, step: int) -> None:
    """With several bad values in a call, one error names each; the first gives its type."""
    with pytest.raises(ValueError, match=r"^'a': .* log it as float; 'b/c': a metric must be .* got b'x' \(bytes\)$"):
        shared.log_metrics({"a": 2**64, "b": {"c": b"x"}, "good": 1.0}, step=step)
    assert row_of(shared, step) == {"good": 1.0}


@pytest.mark.parametrize("metrics", [[("a", 1.0)], "a", None, 1.0], ids=["pairs", "text", "None", "number"])
def test_metrics_must_be_a_mapping(shared: TrackioLogger, metrics: Any) -> None:
    """Anything but a mapping or tensordict is refused at the call."""
    message = f"metrics must be a mapping or a TensorDict, got {metrics!r} ({type(metrics).__name__})"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        shared.log_metrics(metrics, step=0)


def test_text_and_none_are_stored(shared: TrackioLogger, step: int) -> None:
    """Text is stored as Markdown, which the dashboard shows, unlike bare strings; None is stored as it is."""
    shared.log_metrics({"text": "a\nb ✓", "numpy": np.str_("c"), "none": None, "empty": ""}, step=step)
    shared.log_str("note", "# Title", step=step)
    texts = {"text": "a\nb ✓", "numpy": "c", "empty": "", "note": "# Title"}
    stored = {name: {"_type": "trackio.markdown", "_value": text} for name, text in texts.items()}
    assert row_of(shared, step) == {**stored, "none": None}


@pytest.mark.parametrize("value", [1, None, b"x", ["a"]], ids=["number", "None", "bytes", "list"])
def test_log_str_takes_text_only(shared: TrackioLogger, step: int, value: Any) -> None:
    """Anything else is refused, with the way out, and the step's other values are stored."""
    shared.log_scalar("before", 1.0, step=step)
    message = f"log_str takes a string, got {value!r} ({type(value).__name__}): log str(value), or use log_metrics"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        shared.log_str("note", value, step=step)
    assert row_of(shared, step) == {"before": 1.0}


UNWRITABLE = {
    "log_str": (TrackioLogger.log_str, ("text", "a\ud800")),
    "log_metrics": (TrackioLogger.log_metrics, ({"text": "a\ud800"},)),
}


@pytest.mark.parametrize(("call", "values"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_text_that_no_store_can_write_is_refused(
    shared: TrackioLogger, step: int, call: Any, values: tuple[Any, ...]
) -> None:
    """Lone surrogates are an error at the call, and what else the step has is stored."""
    shared.log_scalar("before", 1.0, step=step)
    with pytest.raises(ValueError, match=r"text must be valid Unicode, got 'a\\ud800': 'utf-8' codec can't encode"):
        call(shared, *values, step=step)
    assert row_of(shared, step) == {"before": 1.0}


def test_trackio_objects_pass_through(shared: TrackioLogger, step: int) -> None:
    """Trackio's own objects are stored as Trackio stores them, in the row of the step's numbers."""
    shared.log_metrics(
        {
            "table": trackio.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]),
            "markdown": trackio.Markdown("*hi*"),
            "histogram": trackio.Histogram([1, 2, 2], num_bins=2),
            "trace": trackio.Trace([{"role": "user", "content": "hi"}]),
            "number": 1.0,
        },
        step=step,
    )
    row = row_of(shared, step)
    assert row.pop("trace", {}).get("_type", "trackio.trace") == "trackio.trace"  # 0.42 and 0.43 keep it elsewhere
    assert row == {
        "table": {"_type": "trackio.table", "_value": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]},
        "markdown": {"_type": "trackio.markdown", "_value": "*hi*"},
        "histogram": {"_type": "trackio.histogram", "bins": [1.0, 1.5, 2.0], "values": [1, 2]},
        "number": 1.0,
    }


def test_media_are_stored_as_files(shared: TrackioLogger, step: int) -> None:
    """Images and Html are files below Trackio's media folder, and keep their captions."""
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    shared.log_metrics(
        {"i": trackio.Image(pixels, caption="c"), "h": trackio.Html("<p>hi</p>", inject=False)}, step=step
    )
    row = row_of(shared, step)
    image, html = row["i"], row["h"]
    assert (image["_type"], image["caption"], html["_type"]) == ("trackio.image", "c", "trackio.html")
    stored = np.asarray(Image.open(folder() / "media" / image["file_path"]).convert("RGB"))
    assert np.array_equal(stored, pixels)
    assert (folder() / "media" / html["file_path"]).read_text() == "<p>hi</p>"


def image_of(logger: TrackioLogger, step: int) -> np.ndarray:
    """The pixels of the image that a step has."""
    path = folder() / "media" / row_of(logger, step)["image"]["file_path"]
    return np.asarray(Image.open(path).convert("RGB"))


def test_the_array_of_an_image_may_change_after_the_call(shared: TrackioLogger, step: int) -> None:
    """What was there when the call was made is stored."""
    pixels = np.full((2, 2, 3), 200, np.uint8)
    shared.log_metrics({"image": trackio.Image(pixels)}, step=step)
    pixels[:] = 0
    assert (image_of(shared, step) == 200).all()


def test_a_pil_image_may_change_after_the_call(shared: TrackioLogger, step: int) -> None:
    """What was there when the call was made is stored."""
    picture = Image.new("RGB", (2, 2), (200, 200, 200))
    shared.log_metrics({"image": trackio.Image(picture)}, step=step)
    picture.paste((0, 0, 0), (0, 0, 2, 2))
    assert (image_of(shared, step) == 200).all()


def test_the_file_of_an_image_may_vanish_after_the_call(shared: TrackioLogger, step: int, tmp_path: Path) -> None:
    """A temporary file need only live as long as the call."""
    path = tmp_path / "image.png"
    Image.new("RGB", (2, 2), (200, 200, 200)).save(path)
    shared.log_metrics({"image": trackio.Image(path)}, step=step)
    path.unlink()
    assert (image_of(shared, step) == 200).all()


def test_a_table_may_change_after_the_call(shared: TrackioLogger, step: int) -> None:
    """A table that goes on growing is stored as it was."""
    table = trackio.Table(columns=["a"], data=[[1]])
    shared.log_metrics({"table": table}, step=step)
    table.data.append({"a": 2})
    assert row_of(shared, step) == {"table": {"_type": "trackio.table", "_value": [{"a": 1}]}}


def test_the_arrays_of_a_histogram_may_change_after_the_call(shared: TrackioLogger, step: int) -> None:
    """Counts that go on growing are stored as they were."""
    counts, edges = np.array([1, 2]), np.array([0.0, 1.0, 2.0])
    shared.log_metrics({"h": trackio.Histogram(np_histogram=(counts, edges))}, step=step)
    counts += 10
    assert row_of(shared, step) == {"h": {"_type": "trackio.histogram", "bins": [0.0, 1.0, 2.0], "values": [1, 2]}}


def test_one_media_object_may_be_logged_twice(shared: TrackioLogger) -> None:
    """Each time it is stored anew, with the array's values of that time."""
    pixels, first, second = np.zeros((2, 2, 3), np.uint8), next(_steps), next(_steps)
    image = trackio.Image(pixels)
    for step, shade in ((first, 100), (second, 200)):
        pixels[:] = shade
        shared.log_metrics({"image": image}, step=step)
    assert [int(image_of(shared, step).mean()) for step in (first, second)] == [100, 200]


def test_a_figure_may_change_after_the_call(shared: TrackioLogger, step: int) -> None:
    """A matplotlib figure is drawn at the call, so that it may be cleared and used again."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = pyplot.figure()
    figure.text(0.5, 0.5, "before")
    shared.log_metrics({"figure": figure, "number": 1.0}, step=step)
    figure.clear()
    pyplot.close(figure)
    row = row_of(shared, step)
    page = (folder() / "media" / row.pop("figure")["file_path"]).read_text()
    assert "<svg" in page
    assert "<!-- before -->" in page
    assert row == {"number": 1.0}


def test_a_tensor_may_be_reused_after_every_call(shared: TrackioLogger, step: int) -> None:
    """Numbers and histograms hold what a tensor or array held at the call, although they are written later."""
    tensor, array = torch.arange(4.0), np.arange(4.0)
    one = torch.tensor(1.0)
    shared.log_scalar("scalar", one, step=step)
    shared.log_metrics({"tensor": tensor, "array": array, "row": tensor[:2]}, step=step)
    shared.log_histogram("histogram", tensor.view(2, 2), step=step)
    shared.log_histogram("edges", tensor, step=step, bins=array)
    for buffer in (tensor, array, one):
        buffer[...] = 100.0
    assert row_of(shared, step) == {
        "scalar": 1.0,
        "tensor": counted(range(4)),
        "array": counted(range(4)),
        "row": counted(range(2)),
        "histogram": counted(range(4)),
        "edges": counted(range(4), [0, 1, 2, 3]),
    }


def test_returned_lists_are_the_callers(shared: TrackioLogger, step: int) -> None:
    """Neither the caller's mapping nor what it gets back is tied to what is stored."""
    metrics = {"a": torch.tensor([1.0, 2.0]), "b": {"c": [1.0, 3.0]}}
    returned = shared.log_metrics(metrics, step=step)
    returned["a"].clear()
    metrics["b"]["c"].clear()
    metrics.clear()
    assert row_of(shared, step) == {"a": counted([1, 2]), "b/c": counted([1, 3])}


_normal = np.random.default_rng(0).normal(size=1000)
DATA = {
    "tensor": (torch.from_numpy(_normal), _normal),
    "(10, 100) array": (_normal.reshape(10, 100), _normal),
    "list": (_normal.tolist(), _normal),
    "number": (5, [5]),
    "Parameter": (torch.nn.Parameter(torch.arange(8.0)), range(8)),
    "int64": (torch.tensor([1, 2, 2**40]), [1, 2, 2**40]),
    "uint8": (np.array([0, 255], np.uint8), [0, 255]),
    "uint16": (torch.tensor([0, 65535], dtype=torch.uint16), [0, 65535]),
    "bool": (torch.tensor([True, False, True]), [1, 0, 1]),
    "float16 to its limits": (torch.tensor([-65504.0, 65504.0], dtype=torch.float16), [-65504, 65504]),
    "bfloat16": (torch.tensor([0.5, 1.5], dtype=torch.bfloat16), [0.5, 1.5]),
    "float8": (torch.tensor([0.5, 1.5]).to(torch.float8_e5m2), [0.5, 1.5]),
    "float32 close together": (torch.tensor([1.0, 1.0000001]), [1.0, 1.0000001192092896]),
    "float32 to its limits": (torch.tensor([-3.4e38, 3.4e38]), [-3.3999999521443642e38, 3.3999999521443642e38]),
    "NaN and infinities": ([1.0, math.nan, 2.0, math.inf, -math.inf], [1, 2]),
    "all equal": (torch.full((5,), 2.0), [2] * 5),
}


@pytest.mark.parametrize(("data", "numbers"), DATA.values(), ids=DATA)
def test_a_histogram_counts_data_of_every_kind(shared: TrackioLogger, step: int, data: Any, numbers: Any) -> None:
    """Without ``bins``, 64 of equal width; what is not finite does not count."""
    shared.log_histogram("h", data, step=step)
    assert row_of(shared, step) == {"h": counted(numbers)}


BINS = {
    "one": (1, 1),
    "many": (512, 512),
    "numpy int": (np.int64(7), 7),
    "None": (None, 64),
    "list": ([-1, 0, 1.5], [-1, 0, 1.5]),
    "array": (np.array([-1.0, 0.0, 1.0]), [-1, 0, 1]),
    "tensor": (torch.linspace(-3, 3, 5), np.linspace(-3, 3, 5)),
    "range": (range(-3, 4), range(-3, 4)),
    "most edges": (np.linspace(-3, 3, 513), np.linspace(-3, 3, 513)),
    **{name: (name, name) for name in ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")},
}


@pytest.mark.parametrize(("bins", "same"), BINS.values(), ids=BINS)
def test_bins_are_numpys(shared: TrackioLogger, step: int, bins: Any, same: Any) -> None:
    """A number, edges or the name of an estimator count as :func:`numpy.histogram` does."""
    shared.log_histogram("h", torch.from_numpy(_normal), step=step, bins=bins)
    same = same if isinstance(same, (int, str)) else list(same)
    assert row_of(shared, step) == {"h": counted(_normal, same)}


HARD = {
    "too close for 64 bins": ([1.0, 1.0 + 2**-52], 64, 2),
    "too close to zero": ([0.0, 5e-324], 64, 2),
    "equal and large": ([1e300] * 3, 64, 3),
    "large integers": (torch.tensor([2**62, 2**62 + 1]), 64, 2),
    "further apart than floats reach": ([-1.7e308, 0.0, 1.7e308], 64, 3),
    "estimator with a far outlier": ([*_normal, 1e9], "fd", 1001),
    "estimator of equal values": ([3.0] * 10, "auto", 10),
    "estimator of one value": ([3.0], "scott", 1),
}


@pytest.mark.parametrize(("data", "bins", "count"), HARD.values(), ids=HARD)
def test_a_histogram_that_numpy_cannot_count_is_stored(
    shared: TrackioLogger, step: int, data: Any, bins: Any, count: int
) -> None:
    """Values too close, too far or too uneven for numpy's edges are all counted, in at most 512 rising bins."""
    shared.log_histogram("h", data, step=step, bins=bins)
    stored = row_of(shared, step)["h"]
    assert sum(stored["values"]) == count
    assert len(stored["values"]) <= 512
    assert (np.diff(stored["bins"]) > 0).all()


@pytest.mark.parametrize("data", [[], torch.zeros(0), [math.nan, math.inf]], ids=["list", "tensor", "not finite"])
def test_a_histogram_of_nothing_is_stored(shared: TrackioLogger, step: int, data: Any) -> None:
    """Nothing to count is an empty histogram, not an error."""
    shared.log_histogram("h", data, step=step)
    assert row_of(shared, step) == {"h": {"_type": "trackio.histogram", "bins": [], "values": []}}


BAD_HISTOGRAMS = {
    "no bins": ([1.0], 0, ValueError, "bins must be from 1 to 512, the most that Trackio keeps, got 0"),
    "too many bins": ([1.0], 513, ValueError, "bins must be from 1 to 512, the most that Trackio keeps, got 513"),
    "float bins": (
        [1.0],
        10.0,
        TypeError,
        "bins must be an integer, an estimator's name or a sequence of edges, got 10.0 (float)",
    ),
    "bool bins": (
        [1.0],
        True,
        TypeError,
        "bins must be an integer, an estimator's name or a sequence of edges, got True (bool)",
    ),
    "unknown estimator": (
        [1.0],
        "best",
        ValueError,
        "bins: 'best' is not a valid estimator for `bins`; numpy.histogram_bin_edges lists the estimators",
    ),
    "one edge": ([1.0], [1], ValueError, "bins must be 2 to 513 rising, finite edges, got [1] (list)"),
    "equal edges": ([1.0], [1, 1], ValueError, "bins must be 2 to 513 rising, finite edges, got [1, 1] (list)"),
    "falling edges": ([1.0], (2, 1), ValueError, "bins must be 2 to 513 rising, finite edges, got (2, 1) (tuple)"),
    "NaN edge": ([1.0], [0, math.nan], ValueError, "bins must be 2 to 513 rising, finite edges, got [0, nan] (list)"),
    "infinite edge": (
        [1.0],
        [0, math.inf],
        ValueError,
        "bins must be 2 to 513 rising, finite edges, got [0, inf] (list)",
    ),
    "too many edges": (
        [1.0],
        np.arange(514),
        ValueError,
        "bins must be 2 to 513 rising, finite edges, got ndarray of shape (514,) and dtype int64",
    ),
    "edges of text": (
        [1.0],
        ["a", "b"],
        TypeError,
        "expected real numbers (tensor, array or sequence), got ['a', 'b'] (list) of <U1",
    ),
    "None": (None, 64, TypeError, "expected real numbers (tensor, array or sequence), got None (NoneType) of object"),
    "text": ("abc", 64, TypeError, "expected real numbers (tensor, array or sequence), got 'abc' (str) of <U3"),
    "complex": (
        np.array([1j]),
        64,
        TypeError,
        "expected real numbers (tensor, array or sequence), got ndarray of shape (1,) and dtype complex128 "
        "of complex128",
    ),
    "complex tensor": (
        torch.tensor([1j]),
        64,
        TypeError,
        "a histogram takes real numbers, got Tensor of shape (1,) and dtype torch.complex64",
    ),
}


@pytest.mark.parametrize(("data", "bins", "error", "message"), BAD_HISTOGRAMS.values(), ids=BAD_HISTOGRAMS)
def test_log_histogram_refuses_at_the_call(
    shared: TrackioLogger, step: int, data: Any, bins: Any, error: type[Exception], message: str
) -> None:
    """Bad data and bins raise, say what they got, and leave the step's other values alone."""
    shared.log_scalar("before", 1.0, step=step)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        shared.log_histogram("h", data, step=step, bins=bins)
    assert row_of(shared, step) == {"before": 1.0}


def test_a_list_of_unequal_lists_is_refused(shared: TrackioLogger, step: int) -> None:
    """Ragged data name themselves and numpy's reason."""
    start = (
        r"^expected numbers \(tensor, array or sequence\), got \[\[1, 2\], \[3\]\] \(list\): setting an array element"
    )
    with pytest.raises(TypeError, match=start):
        shared.log_histogram("h", [[1, 2], [3]], step=step)
