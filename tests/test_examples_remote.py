"""The examples that go beyond one process and one machine, run with little to do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import reading

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str, *arguments: str) -> str:
    """What the example prints."""
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_the_remote_server_has_every_row_and_the_hyperparameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``remote_server.py`` prints what arrived, and neither the token nor anything else in between."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "client"))
    out = run_example("remote_server.py", "--folder", str(tmp_path / "server"), "--project", "p", "--episodes", "3")
    assert "has 3 rows of ['episode/reward', 'episode/worst_step']" in out
    assert "write_token" not in out
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "server"))
    rows = reading.rows("p", "random-policy")
    assert [(step, sorted(metrics)) for step, metrics in rows] == [
        (step, ["episode/reward", "episode/worst_step"]) for step in range(3)
    ]
    assert reading.config("p", "random-policy") == {"env/name": "Pendulum-v1", "policy": "random"}


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_ray_collectors_and_the_training_log_to_one_run(project: str) -> None:
    """``distributed_ray.py``: every collector's episodes, every update's losses and the hyperparameters."""
    settings = {"project": project, "frames": "1024", "batch": "512", "collectors": "2", "seed": "1"}
    out = run_example("distributed_ray.py", *[word for key, value in settings.items() for word in (f"--{key}", value)])
    assert f"trackio show --project {project}" in out
    run = "ppo-seed-1"
    for name in ("collector0/reward", "collector1/reward"):
        assert [step for step, _ in reading.series(project, name, run)] == [256, 512]
    for name in ("ppo/loss_objective", "ppo/entropy", "train/fps"):
        assert [step for step, _ in reading.series(project, name, run)] == [512, 1024]
    assert reading.config(project, run).items() >= {"seed": 1, "frames": 1024, "batch": 512}.items()
    assert len(reading.run_ids(project)) == 1
