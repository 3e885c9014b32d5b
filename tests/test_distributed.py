"""Several ranks, one run."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import trackio

import reading
from children import Child
from torchrl_trackio import TrackioLogger

TRAINING = """
import json, os, sys
import torch
import torch.distributed as dist
from torchrl.record import VideoRecorder
from torchrl.record.loggers import get_logger

dist.init_process_group("gloo")
if sys.argv[1] == "process group":
    del os.environ["RANK"]  # as where another launcher than torchrun started the processes
logger = get_logger("trackio", "", "run", trackio_kwargs={
    "project": "p", "rank_zero_only": True, "config": {"lr": 0.1}})
logger.log_hparams({"ranks": dist.get_world_size()})
recorder = VideoRecorder(logger, tag="video")
for step in range(3):
    loss = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(loss)
    logger.log_scalar("loss", loss, step=step)
    returned = logger.log_metrics({"reward": torch.tensor([1.0, 2.0]), "nested": {"a": loss}}, step=step)
    logger.log_histogram("weights", torch.randn(10), step=step)
    recorder._apply_transform(torch.zeros(16, 16, 3, dtype=torch.uint8))
recorder.dump()
logger.log_str("text", "hello", step=2)
logger.experiment.log({"direct": 1.0}, step=2)
saved = logger.state_dict()
states = [None, None]
dist.all_gather_object(states, saved)
logger.load_state_dict(states[0])
logger.flush()
logger.experiment.finish()
logger.close()
rank = dist.get_rank()
with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
    json.dump([logger.exp_name, saved["exp_name"], logger.experiment.config, logger.is_alive, returned], file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("known_from", ["RANK", "process group"])
def test_two_ranks_make_one_run(known_from: str, tmp_path: Path) -> None:
    """Under torchrun, rank 0 stores everything once, and the other one runs through the same calls."""
    (tmp_path / "train.py").write_text(TRAINING)
    store = tmp_path / "store"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launcher, str(tmp_path / "train.py"), known_from, str(tmp_path)],
        env={**os.environ, "TRACKIO_DIR": str(store), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    returned = {"reward": [1.0, 2.0], "nested/a": 1.0}
    told = ["run", "run", {"lr": 0.1, "ranks": 2}, False, returned]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)] == [told, told]
    child = Child(store)
    assert len(child.run_ids()) == 1
    assert child.steps("loss") == child.steps("reward") == child.steps("weights") == [0, 1, 2]
    assert (child.steps("text"), child.steps("direct"), child.steps("video")) == ([2], [2], [0])
    assert [row["loss"] for _, row in child.rows() if "loss" in row] == [1.0] * 3


@pytest.fixture
def silent(project: str, monkeypatch: pytest.MonkeyPatch) -> TrackioLogger:
    """The logger of the second rank."""
    monkeypatch.setenv("RANK", "1")
    return TrackioLogger("run", project, rank_zero_only=True, config={"optim": {"lr": 0.1}})


def test_a_silent_logger_says_so(silent: TrackioLogger, project: str) -> None:
    """Its repr and its experiment's tell why nothing is stored; name, project and configuration are the run's."""
    assert repr(silent) == f"TrackioLogger(exp_name='run', project='{project}', place='nowhere: only rank 0 logs')"
    run = silent.experiment
    assert repr(run) == f"<SilentRun 'run' of project '{project}': only rank 0 logs>"
    silent.log_hparams({"optim": {"eps": 1}})
    assert (run.name, run.project, run.id, run.config) == ("run", project, "", {"optim": {"lr": 0.1, "eps": 1}})


def test_a_silent_logger_takes_everything_and_stores_nothing(silent: TrackioLogger, project: str) -> None:
    """Every call of a logger and of a run is there, also in a copy and a pickle, and none makes a file or a row."""
    for logger in (silent, copy.deepcopy(silent), pickle.loads(pickle.dumps(silent))):
        logger.log_video("v", np.zeros((2, 3, 8, 8), np.uint8), step=np.int64(3))
        logger.log_metrics({"a": trackio.Table(columns=["c"], data=[[1]])})
        run = logger.experiment
        run.log({"b": 1.0}, step=1)
        run.alert("title", "text")
        run.log_artifact("no/such/file")
        assert not hasattr(run, "nonsense")
        with logger:
            assert logger.is_alive
            assert logger.start() is logger
        assert not logger.is_alive
    assert reading.query(project, "SELECT * FROM metrics") == []
    assert not (reading.folder() / "media" / project).exists()


def test_a_silent_logger_refuses_what_the_first_rank_refuses(silent: TrackioLogger, project: str) -> None:
    """All ranks raise the same error, so that none waits for another that has stopped."""
    with pytest.raises(TypeError, match="step must be an integer"):
        silent.log_scalar("x", 1.0, step=1.5)
    with pytest.raises(TypeError, match="^'bad': a metric must be a number"):
        silent.log_metrics({"bad": object(), "good": 1.0})
    with pytest.raises(TypeError, match="unknown options 'nonsense'"):
        TrackioLogger("run", project, rank_zero_only=True, nonsense=1)
    with pytest.raises(ValueError, match="name"):
        TrackioLogger("../run", project, rank_zero_only=True)


def test_a_silent_loggers_state_is_of_no_run(silent: TrackioLogger, logger: TrackioLogger, project: str) -> None:
    """A silent rank takes any state; rank 0 refuses one that a silent rank has saved."""
    logger.log_scalar("x", 1.0)
    silent.load_state_dict(logger.state_dict())
    assert silent.state_dict() == {
        "exp_name": "run",
        "log_dir": project,
        "local": {"project": project, "name": "run", "id": "", "last_steps": {}},
    }
    with pytest.raises(RuntimeError, match="but the checkpoint was written by run ''"):
        logger.load_state_dict(silent.state_dict())


def test_without_ranks_there_is_one_run(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rank_zero_only`` changes nothing where nobody set a rank, nor for rank 0, and is off by default."""
    for name, ranks, options in (
        ("a", "", {}),
        ("b", "0", {}),
        ("c", "1", {"rank_zero_only": False}),
        ("d", "1", None),
    ):
        monkeypatch.setenv("RANK", ranks)
        with TrackioLogger(
            name, project, **({"rank_zero_only": True} | options if options is not None else {})
        ) as logger:
            logger.log_scalar("x", torch.tensor(1.0))
        assert reading.series(project, "x", name) == [(0, 1.0)]
