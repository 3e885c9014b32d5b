"""Continuing a run: by name, and by the state in a checkpoint."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import reading
from children import Child
from torchrl_trackio import TrackioLogger
from torchrl_trackio.environment import environment


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_run_is_continued_by_its_name(project: str, resume: str) -> None:
    """One run, whose metrics' counts go on where each of them ended."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("a", 0.0, step=10)
        logger.log_scalar("b", 0.0, step=20)
    with TrackioLogger("run", project, resume=resume) as logger:
        logger.log_scalar("a", 1.0)
        logger.log_scalar("b", 1.0)
        logger.log_scalar("new", 1.0)
    assert [reading.series(project, name) for name in ("a", "b", "new")] == [
        [(10, 0.0), (11, 1.0)],
        [(20, 0.0), (21, 1.0)],
        [(0, 1.0)],
    ]
    assert len(reading.run_ids(project)) == 1


@pytest.mark.parametrize("config", [{}, {"optim": {"lr": 1.0}}], ids=["no hyperparameters", "hyperparameters"])
def test_a_run_that_is_continued_only_to_read_stays_as_it_is(
    project: str, config: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows, hyperparameters and record of the environment are not touched."""
    with TrackioLogger("run", project, config=config) as logger:
        logger.log_scalar("x", 0.0, step=7)
    before = reading.rows(project), reading.stored_config(project)
    environment.cache_clear()
    monkeypatch.setattr(sys, "orig_argv", ["python", "read.py"])
    with TrackioLogger("run", project, resume="must") as logger:
        logger.flush()
        assert logger.experiment.config == config
    assert (reading.rows(project), reading.stored_config(project)) == before
    with TrackioLogger("run", project, resume="must") as logger:
        logger.experiment.config["seed"] = 1
    assert reading.config(project)["seed"] == 1
    assert reading.stored_config(project)["env/command"] == "python read.py"
    environment.cache_clear()


def test_another_word_for_resume_is_an_error(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told before anything is opened."""
    with pytest.raises(ValueError, match=r"^resume must be one of 'never', 'allow', 'must', got 'alow'$"):
        TrackioLogger("run", project, resume="alow")
    assert capsys.readouterr().out == ""


def test_a_state_needs_no_run_of_the_given_name(project: str) -> None:
    """Also where the run must exist, it is the state's, whatever the logger is called."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("x", 0.0)
        saved = logger.state_dict()
    with TrackioLogger("other", project, resume="must", state_dict=saved) as logger:
        logger.log_scalar("x", 1.0)
    assert reading.series(project, "x") == [(0, 0.0), (1, 1.0)]


def test_a_run_that_must_exist_and_does_not_is_an_error(project: str) -> None:
    """resume="must" refuses an unknown name, and leaves nothing behind."""
    with pytest.raises(ValueError, match="'run' does not exist"):
        TrackioLogger("run", project, resume="must")
    assert reading.run_ids(project) == set()


def test_a_state_of_a_run_that_is_not_stored_here_is_an_error(project: str) -> None:
    """A checkpoint from elsewhere is refused with the way out; the failed logger stores no run."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("x", 0.0, step=0)
        saved = logger.state_dict()
    saved["local"]["id"] = "0" * 32
    with pytest.raises(ValueError, match="set TRACKIO_DIR or server_url to where it was logged to"):
        TrackioLogger("run", project, state_dict=saved, config={"lr": 1.0})
    assert len(reading.run_ids(project)) == 1
    assert reading.config(project) == {}


def test_a_state_saved_before_the_first_row_starts_the_run(project: str) -> None:
    """A job that was preempted between its first checkpoint and its first row goes on with the saved id."""
    with TrackioLogger("run", project) as logger:
        saved = logger.state_dict()
    with TrackioLogger("run", project, state_dict=saved) as logger:
        logger.log_scalar("x", 0.0)
    assert reading.series(project, "x") == [(0, 0.0)]
    assert reading.run_ids(project) == {saved["local"]["id"]}


def test_a_state_brings_its_project_and_name(project: str) -> None:
    """A logger made for a state needs neither."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("x", 0.0, step=3)
        saved = logger.state_dict()
    with TrackioLogger("anything", state_dict=saved) as logger:
        logger.log_scalar("x", 1.0)
        assert (logger.exp_name, logger.experiment.project) == ("run", project)
    assert reading.series(project, "x") == [(3, 0.0), (4, 1.0)]


def test_the_checkpoint_around_a_state_is_refused_with_the_way_out(logger: TrackioLogger) -> None:
    """The error says what it got, and what to pass."""
    checkpoint = {"step": 3, "logger": logger.state_dict()}
    message = r"^this is no state of a TrackioLogger, it has the keys \['logger', 'step'\]: pass what its state_dict"
    with pytest.raises(ValueError, match=message):
        logger.load_state_dict(checkpoint)
    with pytest.raises(ValueError, match=message):
        TrackioLogger("run", state_dict=checkpoint)


def test_a_state_is_loaded_into_a_fresh_logger_only(project: str) -> None:
    """A logger that has logged nothing becomes the saved run; one that has refuses, with torchrl's wording."""
    with TrackioLogger("run", project) as logger:
        logger.log_hparams({"a": 1})
        logger.log_scalar("x", 0.0, step=5)
        saved = logger.state_dict()
    with TrackioLogger("other", project) as logger:
        logger.log_scalar("x", 0.0, step=0)
        with pytest.raises(RuntimeError, match="but the checkpoint was written by run"):
            logger.load_state_dict(saved)
    with TrackioLogger("fresh", project) as logger:
        logger.log_hparams({"b": 2})
        logger.load_state_dict(saved)
        logger.log_scalar("x", 1.0)
    assert reading.series(project, "x") == [(5, 0.0), (6, 1.0)]
    assert reading.config(project) == {"a": 1, "b": 2}
    assert len(reading.run_ids(project)) == 2


def test_hyperparameters_are_refused_after_the_end(project: str) -> None:
    """As every other call, log_hparams says that the run is finished."""
    logger = TrackioLogger("run", project)
    logger.close()
    with pytest.raises(RuntimeError, match="this run is finished"):
        logger.log_hparams({"lr": 1.0})


def test_a_run_of_the_jsonl_mode_is_continued_by_its_state(tmp_path: Path) -> None:
    """Trackio imports such rows later; here they are found by the next process all the same."""
    child = Child(tmp_path, "jsonl")
    done = child.run("logger.log_scalar('x', 0.0, step=7)\nprint('STATE', logger.state_dict())")
    state = re.search("^STATE (.*)$", done.stdout, re.MULTILINE)[1]
    child.prelude = (
        f"from torchrl_trackio import TrackioLogger\nlogger = TrackioLogger('run', 'p', state_dict={state})\n"
    )
    done = child.run("logger.log_scalar('x', 1.0)")
    assert done.returncode == 0, done.stderr
    assert child.steps() == [7, 8]


def test_a_run_that_its_state_continues_is_said_to_be_resumed(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In Trackio's words; not that it was created, which Trackio says before it knows; and nothing by a quiet one."""
    with TrackioLogger("run", project) as logger:
        logger.log_scalar("x", 1.0)
        state = logger.state_dict()
    capsys.readouterr()
    TrackioLogger("run", project, state_dict=state).close()
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith(": run")] == ["* Resumed existing run: run"]
    TrackioLogger("run", project, state_dict=state, quiet=True).close()
    assert capsys.readouterr().out == ""


def test_what_is_no_state_at_all_is_an_error(project: str) -> None:
    """The text says what it should be."""
    with pytest.raises(TypeError, match=r"what a TrackioLogger's state_dict\(\) returned, got 'x' \(str\)"):
        TrackioLogger("run", project, state_dict="x")


@pytest.mark.parametrize(("typo", "meant"), [("projct", "project"), ("quite", "quiet"), ("groop", "group")])
def test_a_typo_of_an_option_is_an_error_that_names_the_right_one(project: str, typo: str, meant: str) -> None:
    """Be it this logger's own or Trackio's; what resembles none is listed with those that there are."""
    with pytest.raises(
        TypeError, match=rf"unknown options '{typo}'; trackio.init takes .*; did you mean '{meant}'[?]$"
    ):
        TrackioLogger("run", **{"project": project, typo: 1})
    with pytest.raises(TypeError, match=r"unknown options 'nonsense'; trackio\.init takes .*[a-z]$"):
        TrackioLogger("run", project, nonsense=1)
