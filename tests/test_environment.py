"""The record of the environment."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import reading
import torchrl_trackio
from children import Child
from torchrl_trackio import TrackioLogger
from torchrl_trackio.environment import RECORDED, environment

SCRIPT = """
import sys
from torchrl_trackio import TrackioLogger
with TrackioLogger("run", "p") as logger:
    logger.log_scalar("x", 1.0)
"""


def recorded(folder: Path) -> dict[str, Any]:
    """The record in the only run's configuration in a folder, without the prefix."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "p.db")) as connection:
        config = json.loads(connection.execute("SELECT config FROM configs").fetchone()[0])
    return {key.removeprefix("env/"): value for key, value in config.items() if key.startswith("env/")}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True).stdout


def run_script(folder: Path, store: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What is recorded of a script that runs from another folder than its own."""
    script = folder / "train.py"
    if not script.exists():
        script.write_text(SCRIPT)
    subprocess.run(
        [sys.executable, script, *arguments],
        check=True,
        cwd="/",
        env={**os.environ, "TRACKIO_DIR": str(store), **environment},
        capture_output=True,
    )
    return recorded(store)


def test_what_is_recorded(logger: TrackioLogger, project: str) -> None:
    """Python, platform, versions and the command are in the stored configuration, and not in the user's own."""
    logger.log_hparams({"lr": 1})
    logger.flush()
    stored = reading.stored_config(project)
    assert {key for key in stored if key.startswith("env/")} <= RECORDED
    expected = {f"env/{package}": version(package) for package in ("torchrl", "tensordict", "trackio")}
    expected |= {
        "env/torch": torch.__version__,
        "env/torchrl_trackio": torchrl_trackio.__version__,
        "env/python": platform.python_version(),
    }
    assert stored.items() >= expected.items()
    assert stored["env/platform"] == f"{platform.system()} {platform.release()} {platform.machine()}"
    assert logger.experiment.config == {"lr": 1}


def test_switched_off(project: str) -> None:
    """With `log_env=False` nothing of it is stored."""
    with TrackioLogger("run", project, log_env=False, config={"a": 1}) as logger:
        logger.log_scalar("x", 1.0)
    assert [key for key in reading.stored_config(project) if not key.startswith("_")] == ["a"]


def test_git(tmp_path: Path) -> None:
    """The commit of the repository that the script lies in, and whether a tracked file differs from it."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.py").write_text(SCRIPT)
    git(tmp_path, "init", "-q", "repository")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    (repository / "untracked").touch()
    clean = run_script(repository, tmp_path / "clean")
    (repository / "train.py").write_text(SCRIPT + "\n")
    dirty = run_script(repository, tmp_path / "dirty")
    commit = git(repository, "rev-parse", "HEAD").strip()
    assert [(r["git_commit"], r["git_dirty"]) for r in (clean, dirty)] == [(commit, False), (commit, True)]


def test_no_repository_and_no_git(tmp_path: Path) -> None:
    """Outside of a repository, or with no git to ask, the rest is recorded."""
    for name, variables in (("no-repository", {}), ("no-git", {"PATH": "/nowhere"})):
        found = run_script(tmp_path, tmp_path / name, **variables)
        assert "git_commit" not in found
        assert found["python"] == platform.python_version()


def test_nothing_secret(tmp_path: Path) -> None:
    """No environment variable, user's or host's name, nor an argument that looks like a secret is stored."""
    home = tmp_path / getpass.getuser() / "home"
    home.mkdir(parents=True)
    secrets = {"HF_TOKEN": "hf_environmentsecret", "MY_PASSWORD": "environmentsecret"}
    arguments = ("--api-key=abcsecret", "--token", "defsecret", "optim.lr=3e-4", f"data={home}/x")
    found = run_script(home, tmp_path / "store", *arguments, HOME=str(home), HF_HUB_OFFLINE="1", **secrets)
    python = Path(sys.executable).name
    assert found["command"] == f"{python} '~/train.py' '--api-key=***' --token '***' optim.lr=3e-4 'data=~/x'"
    text = json.dumps(found)
    assert "secret" not in text
    assert socket.gethostname() not in text
    assert str(home) not in text


def test_process_that_multiprocessing_started(tmp_path: Path) -> None:
    """The command is that of the script, also in torchrl's logger service, which runs in such a process."""
    script = tmp_path / "train.py"
    script.write_text("""if True:
        import multiprocessing
        from torchrl_trackio.environment import environment
        def report():
            print(environment()["env/command"])
        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=report)
            process.start()
            process.join()
    """)
    command = [sys.executable, "train.py", "lr=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{Path(sys.executable).name} train.py lr=1\n"


def test_users_own_entries_win(project: str) -> None:
    """Hyperparameters named `env`, and entries of the record's names, stay what the user gave."""
    with TrackioLogger("run", project, config={"env": {"python": "mine", "name": "CartPole"}}) as logger:
        logger.log_scalar("x", 1.0)
    stored = reading.stored_config(project)
    assert (stored["env/python"], stored["env/name"]) == ("mine", "CartPole")
    with TrackioLogger("leaf", project, config={"env": "CartPole"}) as logger:
        logger.log_scalar("x", 1.0)
    assert reading.stored_config(project, "leaf")["env"] == "CartPole"
    assert reading.stored_config(project, "leaf")["env/torchrl"] == version("torchrl")


def test_users_own_entries_survive_a_resume(project: str) -> None:
    """What the record has under a name of theirs is stored under that name and a `_`."""
    given = {"env": {"python": "mine", "name": "CartPole"}}
    with TrackioLogger("run", project, config=given) as logger:
        logger.log_scalar("x", 1.0)
    with TrackioLogger("run", project, resume="must") as logger:
        logger.log_scalar("x", 2.0)
        assert logger.experiment.config == given
    stored = reading.stored_config(project)
    assert (stored["env/python"], stored["env/python_"]) == ("mine", platform.python_version())


@pytest.mark.parametrize("log_env", [True, False])
def test_resumed_run(project: str, log_env: bool) -> None:
    """The record does not become the user's hyperparameters; it is that of the last job that made one."""
    with TrackioLogger("run", project, config={"env": {"name": "A"}}) as logger:
        logger.log_scalar("x", 1.0)
    first = reading.stored_config(project)
    with TrackioLogger("run", project, resume="must", log_env=log_env) as logger:
        logger.log_scalar("x", 2.0)
        assert logger.experiment.config == {"env": {"name": "A"}}
    assert reading.stored_config(project) == first


def test_entry_that_the_next_job_has_not(tmp_path: Path) -> None:
    """What a resumed job cannot find out stays recorded, and does not become the user's hyperparameter either."""
    child = Child(tmp_path, prelude="")
    code = """
    import sys
    from torchrl_trackio import TrackioLogger
    sys.modules["__main__"].__file__ = %r
    with TrackioLogger("run", "p", resume="allow", config={"lr": 1}) as logger:
        logger.log_scalar("x", 1.0)
        print("CONFIG", logger.experiment.config)
    """
    first = child.run(code % __file__)
    commit = recorded(tmp_path).get("git_commit")
    second = child.run(code % str(tmp_path / "script.py"))
    assert [done.stdout.count("CONFIG {'lr': 1}") for done in (first, second)] == [1, 1], second.stderr
    assert commit is not None
    assert recorded(tmp_path)["git_commit"] == commit


def test_spawned_worker_leaves_the_record_of_the_first(tmp_path: Path) -> None:
    """A worker that shares the run adds hyperparameters, and not its own command."""
    child = Child(tmp_path)
    done = child.run(
        """
        import pickle, subprocess
        logger.log_scalar("x", 1.0)
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).log_hparams({'worker': 1})"
        subprocess.run([sys.executable, "-c", code, "worker"], input=pickle.dumps(logger), check=True)
        """
    )
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path)["command"].endswith("-c ...")


def test_time() -> None:
    """The record takes less than 50 ms; construction does not wait for it."""
    taken = []
    for _ in range(10):
        environment.cache_clear()
        start = time.perf_counter()
        environment()
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_gpu() -> None:
    """The names of the GPUs are recorded, without initialising them in a process that has not."""
    code = """if True:
        import torch
        from torchrl_trackio.environment import environment
        print(environment()["env/gpu"], environment()["env/cuda"])
        assert not torch.cuda.is_initialized()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert torch.cuda.get_device_name(0) in done.stdout
