"""A step is a step: any integer-like number, exactly as given, or each metric's own count."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
import trackio

from reading import query, rows, run_ids, series
from torchrl_trackio import TrackioLogger

FRAMES = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
Call = Callable[[TrackioLogger, str, Any], object]
CALLS: dict[str, Call] = {
    "log_scalar": lambda logger, name, step: logger.log_scalar(name, 1.0, step=step),
    "log_metrics": lambda logger, name, step: logger.log_metrics({name: 1.0}, step=step),
    "log_histogram": lambda logger, name, step: logger.log_histogram(name, [1.0, 2.0], step=step),
    "log_str": lambda logger, name, step: logger.log_str(name, "text", step=step),
    "log_video": lambda logger, name, step: logger.log_video(name, FRAMES, step=step),
    "experiment.log": lambda logger, name, step: logger.experiment.log({name: 1.0}, step=step),
}


class Phase(enum.IntEnum):
    """An integer of a subclass."""

    SECOND = 7


def steps(logger: TrackioLogger, name: str) -> list[int]:
    """The stored steps of a metric."""
    logger.flush()
    return [step for step, _ in series(logger.experiment.project, name)]


TYPES = {
    "int": (7, 7),
    "zero": (0, 0),
    "negative": (-3, -3),
    "IntEnum": (Phase.SECOND, 7),
    "float": (7.0, 7),
    "1e6": (1e6, 1_000_000),
    "numpy float": (np.float32(7), 7),
    **{
        f"numpy {kind.__name__}": (kind(7), 7)
        for kind in (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
    },
    "0-d array": (np.array(7), 7),
    "0-d tensor": (torch.tensor(7), 7),
    "int32 tensor": (torch.tensor(7, dtype=torch.int32), 7),
    "float tensor": (torch.tensor(7.0), 7),
    "bfloat16 tensor": (torch.tensor(7.0, dtype=torch.bfloat16), 7),
    "grad": (torch.tensor(7.0, requires_grad=True), 7),
    "one element": (torch.tensor([7]), 7),
    "beyond a double's integers": (2**53 + 1, 2**53 + 1),
    "largest": (2**63 - 1, 2**63 - 1),
    "smallest": (-(2**63), -(2**63)),
    "largest numpy": (np.int64(2**63 - 1), 2**63 - 1),
}


@pytest.mark.parametrize(("step", "stored"), TYPES.values(), ids=TYPES)
def test_any_integer_like_step_is_stored_as_an_integer(
    logger: TrackioLogger, project: str, step: Any, stored: int
) -> None:
    """All calls take it, and the store holds an integer: Trackio alone would store numpy's as bytes."""
    for name, call in CALLS.items():
        if name != "log_video":
            call(logger, name, step)
    logger.flush()
    assert query(project, "SELECT step, typeof(step) FROM metrics") == [(stored, "integer")]


def test_a_video_takes_any_integer_like_step(logger: TrackioLogger) -> None:
    """A video's step is converted as all others are."""
    for step in (np.int64(3), torch.tensor(5), 7.0, 2**63 - 1):
        logger.log_video("video", FRAMES, step=step)
    assert steps(logger, "video") == [3, 5, 7, 2**63 - 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_step_may_be_on_a_gpu(logger: TrackioLogger) -> None:
    """A frame counter kept on the device is read."""
    logger.log_scalar("x", 1.0, step=torch.tensor(7, device="cuda"))
    assert steps(logger, "x") == [7]


MUST_BE = "step must be an integer (int, numpy integer, 0-d tensor, integral float), got"
BAD = {
    "fraction": (1.5, TypeError, f"{MUST_BE} 1.5"),
    "NaN": (math.nan, TypeError, f"{MUST_BE} nan"),
    "infinity": (math.inf, TypeError, f"{MUST_BE} inf"),
    "text": ("1", TypeError, f"{MUST_BE} '1'"),
    "bool": (True, TypeError, f"{MUST_BE} True"),
    "numpy bool": (np.True_, TypeError, f"{MUST_BE} {np.True_!r}"),
    "bool tensor": (torch.tensor(True), TypeError, f"{MUST_BE} tensor(True)"),
    "Decimal": (Decimal(1), TypeError, f"{MUST_BE} Decimal('1')"),
    "complex": (torch.tensor(1j), TypeError, f"{MUST_BE} tensor(0.+1.j)"),
    "list": ([1], TypeError, f"{MUST_BE} [1]"),
    "two elements": (torch.tensor([1, 2]), TypeError, f"{MUST_BE} tensor([1, 2])"),
    "no element": (np.array([], int), TypeError, f"{MUST_BE} array([], dtype=int64)"),
    "fraction tensor": (torch.tensor(0.5), TypeError, f"{MUST_BE} tensor(0.5000)"),
    "meta": (
        torch.tensor(1, device="meta"),
        TypeError,
        f"{MUST_BE} tensor(..., device='meta', size=(), dtype=torch.int64)",
    ),
    "too large": (
        2**63,
        ValueError,
        "step must fit in a signed 64-bit integer, got 9223372036854775808 (int)",
    ),
    "too small": (
        -(2**63) - 1,
        ValueError,
        "step must fit in a signed 64-bit integer, got -9223372036854775809 (int)",
    ),
    "too large uint64": (
        np.uint64(2**64 - 1),
        ValueError,
        "step must fit in a signed 64-bit integer, got 18446744073709551615 (int)",
    ),
    "too large float": (
        2.0**63,
        ValueError,
        "step must fit in a signed 64-bit integer, got 9223372036854775808 (int)",
    ),
    "no digits": (
        10**5000,
        ValueError,
        "step must fit in a signed 64-bit integer, got something without a repr (int)",
    ),
}


@pytest.mark.parametrize(("step", "error", "message"), BAD.values(), ids=BAD)
def test_any_other_step_is_refused_and_loses_nothing(
    logger: TrackioLogger, project: str, step: Any, error: type[Exception], message: str
) -> None:
    """Every call raises, says what it got and takes, and what was logged before and after is stored in one row."""
    logger.log_scalar("before", 1.0, step=3)
    for name, call in CALLS.items():
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            call(logger, name, step)
    logger.log_scalar("after", 2.0, step=3)
    logger.log_scalar("log_scalar", 3.0)  # no count has been touched
    logger.flush()
    assert rows(project) == [(3, {"before": 1.0, "after": 2.0}), (0, {"log_scalar": 3.0})]


@pytest.mark.parametrize("call", [c for name, c in CALLS.items() if name != "experiment.log"], ids=list(CALLS)[:-1])
def test_none_counts_from_zero(logger: TrackioLogger, call: Call) -> None:
    """Without a step, every kind of metric counts 0, 1, 2."""
    for _ in range(3):
        call(logger, "x", None)
    assert steps(logger, "x") == [0, 1, 2]


@pytest.mark.parametrize("call", [c for name, c in CALLS.items() if name != "experiment.log"], ids=list(CALLS)[:-1])
def test_none_goes_on_from_the_last_step(logger: TrackioLogger, call: Call) -> None:
    """After a given step, also one that lies before others or below zero, the count goes on with the next."""
    for step in (10, None, 3, None, -5, None, None, np.int64(2**40), None):
        call(logger, "x", step)
    assert steps(logger, "x") == [10, 11, 3, 4, -5, -4, -3, 2**40, 2**40 + 1]


def test_each_metric_has_a_count_of_its_own(logger: TrackioLogger, project: str) -> None:
    """Metrics logged rarely are not pushed on by those logged often; what meets at a step shares its row."""
    for episode in range(2):
        for _ in range(3):
            logger.log_scalar("often", 1.0)
        logger.log_scalar("rarely", float(episode))
    logger.flush()
    assert [step for step, _ in series(project, "often")] == [0, 1, 2, 3, 4, 5]
    assert series(project, "rarely") == [(0, 0.0), (1, 1.0)]


def test_a_loop_without_steps_makes_one_row_a_turn(logger: TrackioLogger, project: str) -> None:
    """Metrics that are logged equally often share their rows."""
    for turn in range(3):
        logger.log_scalar("a", turn)
        logger.log_scalar("b", turn + 10)
        logger.log_histogram("c", [0.0, 1.0], bins=1)
    logger.flush()
    histogram = {"_type": "trackio.histogram", "bins": [0.0, 1.0], "values": [2]}
    assert rows(project) == [(turn, {"a": turn, "b": turn + 10, "c": histogram}) for turn in range(3)]


def test_log_metrics_gives_all_its_names_one_step(logger: TrackioLogger, project: str) -> None:
    """It is the first that comes after the last of every name, so that none goes back."""
    logger.log_scalar("a", 0.0, step=5)
    logger.log_metrics({"a": 1.0, "b": 1.0})
    logger.log_metrics({"b": 2.0, "c": 2.0})
    logger.log_metrics({"d": 3.0})
    logger.log_scalar("c", 4.0)
    logger.flush()
    assert rows(project) == [
        (5, {"a": 0.0}),
        (6, {"a": 1.0, "b": 1.0}),
        (7, {"b": 2.0, "c": 2.0}),
        (0, {"d": 3.0}),
        (8, {"c": 4.0}),
    ]


def test_nothing_to_log_counts_nothing(logger: TrackioLogger, project: str) -> None:
    """An empty mapping is neither an error nor a row nor a step."""
    assert logger.log_metrics({}) == {}
    assert logger.log_metrics({}, step=3) == {}
    logger.experiment.log({})
    logger.log_scalar("x", 1.0)
    logger.flush()
    assert rows(project) == [(0, {"x": 1.0})]


def test_a_refused_value_counts_nothing(logger: TrackioLogger, project: str) -> None:
    """The next value of that name takes the step that the bad one would have had."""
    for _ in range(2):
        with pytest.raises(TypeError):
            logger.log_scalar("x", "text")
        with pytest.raises(TypeError):
            logger.log_metrics({"x": object(), "y": 1.0})
        with pytest.raises(TypeError):
            logger.log_video("x", "text")
    logger.log_scalar("x", 1.0)
    logger.flush()
    assert series(project, "x") == [(0, 1.0)]
    assert series(project, "y") == [(0, 1.0), (1, 1.0)]


def test_the_count_ends_with_int64(logger: TrackioLogger, project: str) -> None:
    """After the largest step there is no next one: a ValueError, and nothing before it is lost."""
    logger.log_scalar("x", 1.0, step=2**63 - 1)
    for call in CALLS.values():
        with pytest.raises(ValueError, match=r"^step must fit in a signed 64-bit integer, got 9223372036854775808"):
            call(logger, "x", None)
    logger.log_scalar("x", 2.0, step=0)
    logger.flush()
    assert rows(project) == [(2**63 - 1, {"x": 1.0}), (0, {"x": 2.0})]


def test_steps_may_go_back_and_repeat(logger: TrackioLogger, project: str) -> None:
    """Every value is stored at the step it was given, in the order of logging."""
    for value, step in enumerate((5, 3, 3, 9, -1, 5, 0)):
        logger.log_scalar("x", value, step=step)
    logger.flush()
    assert rows(project) == [(step, {"x": value}) for value, step in enumerate((5, 3, 3, 9, -1, 5, 0))]


def test_step_zero_is_a_step(logger: TrackioLogger) -> None:
    """Zero is not taken for missing, in any call."""
    for call in CALLS.values():
        call(logger, "x", 5)
        call(logger, "x", 0)
    assert steps(logger, "x").count(0) == len(CALLS)
    assert set(steps(logger, "x")) == {0, 5}


def test_experiment_log_counts_for_the_whole_run(logger: TrackioLogger, project: str) -> None:
    """As trackio.Run.log does: without a step, the largest of the run plus one."""
    logger.experiment.log({"a": 1.0})
    logger.log_scalar("b", 1.0, step=7)
    logger.experiment.log({"a": 2.0})
    logger.log_scalar("b", 2.0, step=3)
    logger.experiment.log({"c": 3.0})
    logger.flush()
    assert rows(project) == [(0, {"a": 1.0}), (7, {"b": 1.0}), (8, {"a": 2.0}), (3, {"b": 2.0}), (9, {"c": 3.0})]


@pytest.mark.parametrize("last", [41, np.int64(41), torch.tensor(41)], ids=["int", "numpy", "tensor"])
def test_a_second_logger_of_that_name_goes_on_counting(project: str, last: Any) -> None:
    """Within a process, the count of a finished run continues in the next of its project and name, which is new."""
    with TrackioLogger("run", project) as logger:
        logger.log_metrics({"x": 1.0, "y": 1.0}, step=last)
        logger.log_scalar("y", 2.0, step=7)
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("x", 2.0)
        logger.log_scalar("y", 3.0)
        logger.log_scalar("z", 4.0)
    assert rows(project) == [
        (41, {"x": 1.0, "y": 1.0}),
        (7, {"y": 2.0}),
        (42, {"x": 2.0}),
        (8, {"y": 3.0}),
        (0, {"z": 4.0}),
    ]
    assert len(run_ids(project)) == 2


def test_other_names_and_projects_count_for_themselves(project: str) -> None:
    """A run of another name, or of the same name elsewhere, starts with 0."""
    for run, where in (("run", project), ("other", project), ("run", f"{project}-2")):
        with TrackioLogger(run, where) as logger:
            logger.log_scalar("x", 1.0)
        assert rows(where, run) == [(0, {"x": 1.0})]


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_resumed_run_goes_on_counting(project: str, resume: str) -> None:
    """Each metric continues after its own last step, the largest in the store where Trackio itself wrote the run."""
    run = trackio.init(project=project, name="run", auto_log_gpu=False)
    run.log({"x": 1.0, "y": 1.0}, step=4)
    run.log({"y": 2.0}, step=9)
    run.finish()
    with TrackioLogger("run", project, resume=resume) as logger:
        logger.log_scalar("x", 2.0)
        logger.log_scalar("y", 3.0)
        logger.log_scalar("z", 4.0)
    assert [(step, row) for step, row in rows(project) if row] == [
        (4, {"x": 1.0, "y": 1.0}),
        (9, {"y": 2.0}),
        (5, {"x": 2.0}),
        (10, {"y": 3.0}),
        (0, {"z": 4.0}),
    ]
    assert len(run_ids(project)) == 1
