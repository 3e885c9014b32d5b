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
from torchrl.record.loggers import get_logger

def make_logger(name):
    options = {"project": "p", "rank_zero_only": True, "config": {"lr": 0.1}}
    return get_logger("trackio", "", name, trackio_kwargs=options)

loggers = [make_logger("RANK")]
dist.init_process_group("gloo")
rank = int(os.environ.pop("RANK"))  # as where another launcher than torchrun has started the processes
loggers.append(make_logger("process group"))
told = []
for logger in loggers:
    logger.log_hparams({"ranks": dist.get_world_size()})
    for step in range(3):
        loss = torch.tensor(float(rank))
        dist.all_reduce(loss)
        logger.log_scalar("loss", loss, step=step)
        returned = logger.log_metrics({"reward": torch.tensor([1.0, 2.0]), "nested": {"a": loss}}, step=step)
        logger.log_histogram("weights", torch.randn(10), step=step)
    logger.log_video("video", torch.zeros(2, 3, 16, 16), step=2)
    logger.log_str("text", "hello", step=2)
    logger.experiment.log({"direct": 1.0}, step=2)
    saved = logger.state_dict()
    states = [None, None]
    dist.all_gather_object(states, saved)
    logger.load_state_dict(states[0])
    logger.flush()
    logger.experiment.finish()
    logger.close()
    told.append([logger.exp_name, saved["exp_name"], logger.experiment.config, logger.is_alive, returned])
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(told, file)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_make_one_run(tmp_path: Path) -> None:
    """Under torchrun or in a process group, rank 0 stores all once, and the other goes through the same calls."""
    (tmp_path / "train.py").write_text(TRAINING)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launcher, str(tmp_path / "train.py"), str(tmp_path)],
        env={**os.environ, "TRACKIO_DIR": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    returned = {"reward": [1.0, 2.0], "nested/a": 1.0}
    told = [[name, name, {"lr": 0.1, "ranks": 2}, False, returned] for name in ("RANK", "process group")]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)] == [told, told]
    stored = Child(tmp_path / "store")
    assert len(stored.run_ids()) == 2
    for name in ("loss", "reward", "weights"):
        assert stored.steps(name) == [0, 1, 2] * 2
    for name in ("video", "text", "direct"):
        assert stored.steps(name) == [2, 2]


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
        logger.log_image("i", torch.zeros(3, 4, 4))
        logger.log_trace("t", [{"role": "user", "content": "c"}])
        logger.log_alert("title", "text")
        logged = [
            logger.log_checkpoint({"a": 1}, 1, 1.0),
            logger.log_artifact("/on/the/first/node", "name"),
            logger.log_artifact({"cannot be pickled": lambda: None}),
        ]
        assert [(artifact.version, artifact.size) for artifact in logged] == [(None, None)] * 3
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
    with pytest.raises(TypeError, match=r"^'bad': a metric must be a number"):
        silent.log_metrics({"bad": object(), "good": 1.0})
    with pytest.raises(TypeError, match="an artifact is a path, a module"):
        silent.log_artifact(3)
    with pytest.raises(ValueError, match="must match"):
        silent.log_artifact({"a": 1}, aliases=["a b"])
    with pytest.raises(TypeError, match="step must be an integer"):
        silent.log_alert("title", step="x")
    with pytest.raises(ValueError, match="an alert's level must be one of"):
        silent.log_alert("title", level="fatal")
    with pytest.raises(TypeError, match="an image must be"):
        silent.log_image("i", 3)
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
        ("unset", "", {"rank_zero_only": True}),
        ("zero", "0", {"rank_zero_only": True}),
        ("off", "1", {}),
    ):
        monkeypatch.setenv("RANK", ranks)
        with TrackioLogger(name, project, **options) as logger:
            logger.log_scalar("x", torch.tensor(1.0))
        assert reading.series(project, "x", name) == [(0, 1.0)]
