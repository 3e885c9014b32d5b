"""One step, one row: whatever calls a step's values come by, whoever makes them, and however fast."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import trackio

from reading import rows, series
from torchrl_trackio import TrackioLogger, TrackioRun

HISTOGRAM = {"_type": "trackio.histogram", "bins": [0.0, 1.0], "values": [2]}
PARTS: dict[str, tuple[Callable[[TrackioLogger], object], dict[str, Any]]] = {
    "scalar": (lambda logger: logger.log_scalar("scalar", torch.tensor(1.5), step=3), {"scalar": 1.5}),
    "metrics": (lambda logger: logger.log_metrics({"a": 1, "b": [0.0, 1.0, 0.5]}, step=3), {"a": 1}),
    "histogram": (lambda logger: logger.log_histogram("h", [0.0, 1.0], step=3, bins=1), {"h": HISTOGRAM}),
    "text": (lambda logger: logger.log_str("t", "x", step=3), {"t": {"_type": "trackio.markdown", "_value": "x"}}),
    "table": (
        lambda logger: logger.log_metrics({"table": trackio.Table(columns=["c"], data=[[1]])}, step=3),
        {"table": {"_type": "trackio.table", "_value": [{"c": 1}]}},
    ),
    "experiment": (lambda logger: logger.experiment.log({"e": np.float32(0.5)}, step=3), {"e": 0.5}),
}


def wait_for(condition: Callable[[], bool], seconds: float = 5) -> float:
    """Seconds until the condition holds, which is asked for all the time: the main thread is busy as in training."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + seconds, "waited in vain"
    return time.monotonic() - start


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run ``work(0) … work(count - 1)`` at once, and raise what one of them raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("rotation", range(len(PARTS)))
def test_a_step_is_one_row_whatever_the_calls(logger: TrackioLogger, project: str, rotation: int) -> None:
    """Scalars, metrics, histograms, text, tables and the run's own log share the row of their step, in any order."""
    calls = list(PARTS.values())
    expected: dict[str, Any] = {}
    for log, stored in calls[rotation:] + calls[:rotation]:
        log(logger)
        expected.update(stored)
    logger.flush()
    ((step, row),) = rows(project)
    assert sum(row.pop("b")["values"]) == 3
    assert (step, row) == (3, expected)


def test_twenty_scalars_a_step_are_one_row_a_step(logger: TrackioLogger, project: str) -> None:
    """Twenty calls a step store what one log_metrics call would."""
    expected = [(step, {f"train/m{k}": step + k / 100 for k in range(20)}) for step in range(200)]
    for step, metrics in expected:
        for name, value in metrics.items():
            logger.log_scalar(name, value, step=step)
    logger.flush()
    assert rows(project) == expected


def test_log_metrics_calls_of_a_step_share_its_row(logger: TrackioLogger, project: str) -> None:
    """As do those of torchrl's collectors, losses and timers."""
    for step in range(3):
        logger.log_metrics({"loss": torch.tensor(1.0), "reward": 2.0}, step=step)
        logger.log_metrics({"time": {"rollout": 3.0}}, step=step)
        logger.log_scalar("lr", 0.5, step=step)
    logger.flush()
    assert rows(project) == [(step, {"loss": 1.0, "reward": 2.0, "time/rollout": 3.0, "lr": 0.5}) for step in range(3)]


def test_a_name_that_comes_again_opens_another_row(logger: TrackioLogger, project: str) -> None:
    """Every value of one name at one step is kept, in order, and its neighbours stay."""
    logger.log_scalar("episode/reward", 1.0, step=5)
    logger.log_scalar("loss", 9.0, step=5)
    logger.log_scalar("episode/reward", 2.0, step=5)
    logger.log_metrics({"episode/reward": 3.0, "episode/length": 7}, step=5)
    logger.log_scalar("lr", 0.5, step=5)
    logger.flush()
    assert rows(project) == [
        (5, {"episode/reward": 1.0, "loss": 9.0}),
        (5, {"episode/reward": 2.0}),
        (5, {"episode/reward": 3.0, "episode/length": 7, "lr": 0.5}),
    ]


def test_interleaved_steps_lose_nothing(logger: TrackioLogger, project: str) -> None:
    """Two loops that log to one run at steps of their own get more rows, and keep every value."""
    for turn in range(3):
        logger.log_scalar("train", turn, step=100 + turn)
        logger.log_scalar("eval", turn, step=turn)
        logger.log_scalar("train/late", turn, step=100 + turn)
    logger.flush()
    expected: list[tuple[int, dict[str, Any]]] = []
    for turn in range(3):
        expected += [(100 + turn, {"train": turn}), (turn, {"eval": turn}), (100 + turn, {"train/late": turn})]
    assert rows(project) == expected


def test_a_row_closes_without_a_further_call(logger: TrackioLogger, project: str) -> None:
    """A second after a step's first value its row closes, and Trackio writes it within another half."""
    logger.log_scalar("a", 1.0, step=1)
    logger.log_scalar("b", 2.0, step=1)
    assert rows(project) == []
    assert 0.5 < wait_for(lambda: bool(rows(project))) < 3
    logger.log_scalar("c", 3.0, step=1)
    logger.flush()
    assert rows(project) == [(1, {"a": 1.0, "b": 2.0}), (1, {"c": 3.0})]


def test_values_that_trickle_in_do_not_keep_a_row_open(logger: TrackioLogger, project: str) -> None:
    """The second counts from a row's first value, not from its last."""
    numbers = itertools.count()

    def trickle() -> bool:
        logger.log_scalar(f"m{next(numbers)}", 1.0, step=1)
        time.sleep(0.05)
        return bool(rows(project))

    assert wait_for(trickle) < 3
    logger.flush()
    stored = [name for _, row in rows(project) for name in row]
    assert stored == [f"m{number}" for number in range(next(numbers))]


def test_flush_closes_the_row(logger: TrackioLogger, project: str) -> None:
    """After a flush everything is readable, and what comes for the same step is stored in another row."""
    for number, name in enumerate("abc", start=1):
        logger.log_scalar(name, number, step=1)
        logger.flush()
        assert len(rows(project)) == number
    logger.flush()
    assert rows(project) == [(1, {"a": 1}), (1, {"b": 2}), (1, {"c": 3})]


def test_a_row_is_written_before_the_logger_ends(project: str) -> None:
    """The open row is stored by shutdown, without a flush."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("a", 1.0, step=1)
        logger.log_scalar("b", 1.0, step=2)
    assert rows(project) == [(1, {"a": 1.0}), (2, {"b": 1.0})]


def test_a_finished_run_refuses_values(project: str) -> None:
    """Every call raises after shutdown; nothing is dropped in silence."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("a", 1.0, step=1)
    refused: list[Callable[[], object]] = [
        lambda: logger.log_scalar("a", 2.0),
        lambda: logger.log_metrics({"a": 2.0}, step=1),
        lambda: logger.log_histogram("h", [1.0]),
        lambda: logger.log_str("s", "x"),
        lambda: logger.log_video("v", torch.zeros(1, 3, 2, 2)),
        lambda: logger.experiment.log({"a": 2.0}),
    ]
    for call in refused:
        with pytest.raises(
            RuntimeError, match=r"^this run is finished and takes no more values: .* with resume='must' for it$"
        ):
            call()
    assert rows(project) == [(1, {"a": 1.0})]


def test_the_experiment_is_a_trackio_run(logger: TrackioLogger, project: str) -> None:
    """It passes for one, and has all that one has."""
    run = logger.experiment
    assert isinstance(run, trackio.Run)
    assert isinstance(run, TrackioRun)
    assert (run.name, run.project) == ("run", project)
    assert isinstance(run.id, str)
    assert callable(run.alert)


def test_the_experiments_log_shares_rows(logger: TrackioLogger, project: str) -> None:
    """Values given to ``logger.experiment.log`` are converted and gathered as the logger's own are."""
    run = logger.experiment
    logger.log_scalar("a", 1.0, step=np.int64(4))
    run.log({"b": torch.tensor(2.0), "c": {"d": np.float32(3)}}, step=torch.tensor(4))
    run.log({"e": 4.0})
    logger.log_scalar("f", 5.0, step=5)
    with pytest.raises(TypeError, match=r"^'bad': a metric must be a number"):
        run.log({"bad": object(), "g": torch.tensor([0.0, 1.0])}, step=5)
    run.flush()
    histogram = rows(project)[1][1].pop("g")
    assert sum(histogram["values"]) == 2
    assert [(step, {k: v for k, v in row.items() if k != "g"}) for step, row in rows(project)] == [
        (4, {"a": 1.0, "b": 2.0, "c/d": 3.0}),
        (5, {"e": 4.0, "f": 5.0}),
    ]


def test_an_object_that_cannot_be_stored_takes_no_neighbour(logger: TrackioLogger, project: str) -> None:
    """A table of what is no JSON is refused at the call, and the others of the call are stored."""
    table = trackio.Table(columns=["a"], data=[[object()]])
    with pytest.raises(TypeError, match=r"^'table': Table cannot be stored: Type is not JSON serializable: object$"):
        logger.log_metrics({"before": 1.0, "table": table, "after": 2.0}, step=3)
    logger.flush()
    assert rows(project) == [(3, {"before": 1.0, "after": 2.0})]


def test_many_threads_lose_nothing(logger: TrackioLogger, project: str) -> None:
    """Twenty threads at once: each finds every value of its own, in order, and a shared count has no gap."""

    def work(number: int) -> None:
        for step in range(100):
            logger.log_scalar(f"own/{number}", step, step=step)
            logger.log_metrics({"shared": number})
            if step % 50 == 0:
                logger.flush()

    in_threads(20, work)
    logger.flush()
    for number in range(20):
        assert series(project, f"own/{number}") == [(step, step) for step in range(100)]
    shared = series(project, "shared")
    assert [step for step, _ in shared] == list(range(2000))
    assert sorted(value for _, value in shared) == sorted(list(range(20)) * 100)


def test_many_threads_share_the_row_of_a_step(logger: TrackioLogger, project: str) -> None:
    """Values that twenty threads log for one step within its second are one row."""
    in_threads(20, lambda number: logger.log_scalar(f"worker/{number}", number, step=7))
    logger.flush()
    assert rows(project) == [(7, {f"worker/{number}": number for number in range(20)})]


def test_rows_faster_than_the_disk_are_all_stored(logger: TrackioLogger, project: str) -> None:
    """Thirty thousand rows as fast as they can be logged: the caller waits a little, and nothing is dropped."""
    for step in range(30_000):
        logger.log_scalar("x", step, step=step)
    logger.flush()
    assert rows(project) == [(step, {"x": step}) for step in range(30_000)]


def test_many_large_histograms_are_all_stored(logger: TrackioLogger, project: str) -> None:
    """Histograms that come faster than they can be counted hold the caller up, not the memory."""
    data = torch.arange(1_000_000, dtype=torch.float32)
    for step in range(40):  # 160 MB of copies, where 64 may wait
        logger.log_histogram("h", data, step=step, bins=2)
    logger.flush()
    assert rows(project) == [
        (step, {"h": {"_type": "trackio.histogram", "bins": [0.0, 499999.5, 999999.0], "values": [500_000] * 2}})
        for step in range(40)
    ]


def test_a_row_without_a_step_follows_the_largest_one(logger: TrackioLogger, project: str) -> None:
    """However soon `experiment.log` is called, its step is the run's largest plus one, not the last one's."""
    logger.log_scalar("x", 3.0, step=10)
    logger.log_scalar("x", 5.0, step=5)
    logger.experiment.log({"y": 1.0})
    logger.flush()
    assert series(project, "y") == [(11, 1.0)]
