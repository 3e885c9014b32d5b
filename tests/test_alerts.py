"""Alerts: the user's own, and the first value of a metric that is not finite."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import trackio

import reading
from children import Child
from torchrl_trackio import TrackioLogger


def alerts(project: str, run: str = "run") -> list[tuple[Any, ...]]:
    """(title, text, level, step) of every alert of a run."""
    sql = "SELECT title, text, level, step FROM alerts WHERE run_name = ? ORDER BY id"
    return reading.query(project, sql, run)


def test_log_alert(logger: TrackioLogger, project: str) -> None:
    """Title, text, level and step are stored; the level defaults to a warning, the step to the run's largest."""
    logger.log_alert("before anything")
    logger.log_scalar("x", 1.0, step=7)
    logger.log_scalar("x", 1.0, step=3)
    logger.log_alert("collapse", "The reward fell to 0.")
    logger.log_alert("done", level="info", step=torch.tensor(4))
    logger.log_alert("Ende", "ä", trackio.AlertLevel.ERROR, 5)
    logger.flush()
    assert alerts(project) == [
        ("before anything", None, "warn", 0),
        ("collapse", "The reward fell to 0.", "warn", 7),
        ("done", None, "info", 4),
        ("Ende", "ä", "error", 5),
    ]


def test_run_with_nothing_but_an_alert(project: str) -> None:
    """Its alert is stored, and it is listed."""
    with TrackioLogger("run", project) as logger:
        logger.log_alert("only")
    assert [(alert["title"], alert["run"]) for alert in trackio.Api().alerts(project)] == [("only", "run")]
    assert [run.name for run in trackio.Api().runs(project)] == ["run"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3,), TypeError, r"an alert's title must be a string, got 3 \(int\)"),
        (("t", 3), TypeError, r"an alert's text must be a string, got 3 \(int\)"),
        (("",), ValueError, "an alert must have a title, got ''"),
        (("\ud800",), ValueError, "an alert's title must be valid Unicode"),
        (("t", None, "fatal"), ValueError, "an alert's level must be one of 'info', 'warn', 'error', got 'fatal'"),
        (("t", None, "warn", 1.5), TypeError, "step must be an integer"),
    ],
    ids=["title", "text", "empty", "unicode", "level", "step"],
)
def test_refused(
    logger: TrackioLogger, project: str, arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    """What Trackio cannot store or show is refused at the call."""
    with pytest.raises(error, match=text):
        logger.log_alert(*arguments)
    logger.flush()
    assert alerts(project) == []


def test_after_the_end(logger: TrackioLogger) -> None:
    """A closed logger refuses alerts as it does values."""
    logger.close()
    with pytest.raises(RuntimeError, match="takes no more values"):
        logger.log_alert("late")


def test_first_nonfinite_value_of_a_metric(logger: TrackioLogger, project: str) -> None:
    """One alert names the metric and the step; further ones of that metric are none, those of another are."""
    for step, loss in enumerate([1.0, math.nan, math.nan, math.inf, 2.0]):
        logger.log_scalar("loss", torch.tensor(loss), step=step)
        logger.log_scalar("best", -math.inf if step == 4 else 0.0, step=step)
    logger.flush()
    assert alerts(project) == [
        ("loss is NaN at step 1", "loss = NaN", "error", 1),
        ("best is -infinite at step 4", "best = -infinite", "error", 4),
    ]


def test_many_metrics_of_one_step(logger: TrackioLogger, project: str) -> None:
    """When the metrics of a step become NaN together, they are one alert."""
    logger.log_metrics({"loss": math.nan, "kl": math.inf, "fine": 1.0, "grad": math.nan}, step=9)
    logger.flush()
    text = "loss = NaN; kl = infinite; grad = NaN"
    assert alerts(project) == [("loss and 2 more are not finite at step 9", text, "error", 9)]


def test_switched_off(project: str) -> None:
    """With `alert_on_nonfinite=False` there is none, and the values are stored."""
    with TrackioLogger("run", project, alert_on_nonfinite=False) as logger:
        logger.log_scalar("loss", math.nan, step=0)
    assert alerts(project) == []
    assert math.isnan(reading.series(project, "loss")[0][1])


def test_in_a_fork_and_a_spawned_worker(tmp_path: Path) -> None:
    """Alerts of every process that shares the logger are stored, its first NaN among them."""
    child = Child(tmp_path)
    done = child.run(
        """
        import pickle, subprocess
        logger.log_scalar("x", 1.0)
        if (pid := os.fork()) == 0:
            logger.log_alert("forked", step=1)
            logger.experiment.finish()
            os._exit(0)
        os.waitpid(pid, 0)
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).log_scalar('y', float('nan'), step=2)"
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(logger), check=True)
        logger.log_alert("parent", step=3)
        """
    )
    assert done.returncode == 0, done.stderr
    found = trackio_alerts(tmp_path)
    assert found == [("forked", 1), ("y is NaN at step 2", 2), ("parent", 3)]


def trackio_alerts(folder: Path) -> list[tuple[Any, ...]]:
    """(title, step) of every alert in project ``p`` of a folder."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "p.db")) as connection:
        return connection.execute("SELECT title, step FROM alerts ORDER BY step").fetchall()
