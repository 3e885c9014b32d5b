"""The examples, run with little to do in processes of their own, and what they leave in the store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reading

EXAMPLES = Path(__file__).parents[1] / "examples"

# Runs the example named first, whose third batch fails.
FAIL_AT_THIRD_BATCH = """
import ppo_cartpole
batches, finished_episodes = [], ppo_cartpole.finished_episodes
def fail(batch):
    batches.append(batch)
    if len(batches) == 3:
        raise RuntimeError("the third batch is bad")
    return finished_episodes(batch)
ppo_cartpole.finished_episodes = fail
ppo_cartpole.main()
"""


def run_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What a Python process prints that finds the examples, and shows its warnings."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=110, env=environment)


@pytest.fixture(scope="module")
def ppo() -> subprocess.CompletedProcess[str]:
    """``ppo_cartpole.py`` over three batches."""
    return run_python(EXAMPLES / "ppo_cartpole.py", "--project", "ppo", "--frames", "6144", "--videos", "2")


def test_ppo_says_where_the_run_is_and_how_to_see_it(ppo: subprocess.CompletedProcess[str]) -> None:
    """The last lines name the run, its folder and the command; nothing but what shows progress comes in between."""
    assert ppo.returncode == 0, ppo.stderr
    said = f"Run 'ppo-seed-0' is in {reading.folder()}. See it with\n  trackio show --project ppo\n"
    assert ppo.stdout.endswith(said)
    assert re.search(r"6144/6144 .*reward=\d+", ppo.stderr)
    others = {line for line in re.split(r"[\r\n]+", ppo.stderr) if "/6144 [" not in line}
    assert others <= {"", "torchrl-trackio: storing 1 video(s) of run 'ppo-seed-0'..."}


@pytest.mark.usefixtures("ppo")
def test_ppo_logs_one_row_a_step() -> None:
    """Each batch is one row of training and loss metrics, with the evaluation and histogram of that step in it."""
    rows = [(step, metrics) for step, metrics in reading.rows("ppo", "ppo-seed-0") if "eval/video" not in metrics]
    assert [step for step, _ in rows] == [2048, 4096, 6144]
    every = {
        *("train/reward", "train/episode_length", "train/fps", "train/lr", "train/advantage"),
        *("ppo/loss_objective", "ppo/loss_critic", "ppo/loss_entropy", "ppo/entropy", "ppo/kl_approx", "ppo/grad_norm"),
    }
    for step, metrics in rows:
        assert metrics.keys() >= every
        assert ("eval/reward" in metrics) == (step != 4096)
        assert sum(metrics["train/advantage"]["values"]) == 2048
    rates = [metrics["train/lr"] for _, metrics in rows]
    assert rates == pytest.approx([1e-3, 7e-4, 4e-4])
    assert 15 < rows[0][1]["train/reward"] < 35


@pytest.mark.usefixtures("ppo")
def test_ppo_stores_every_hyperparameter() -> None:
    """The nested hyperparameters are stored leaf by leaf."""
    config = reading.config("ppo", "ppo-seed-0")
    assert config.items() >= {"seed": 0, "total_frames": 6144, "optim/lr": 1e-3, "gae/lmbda": 0.95}.items()
    assert config["env/env_name"] == "CartPole-v1"


@pytest.mark.usefixtures("ppo")
def test_ppo_records_its_evaluation_episodes() -> None:
    """Each evaluated episode is a video at its step, in real time, of a cart that moves."""
    lengths = dict(reading.series("ppo", "eval/episode_length", "ppo-seed-0"))
    videos = reading.media("ppo", "eval/video", "ppo-seed-0")
    assert sorted(step for step, _ in videos) == sorted(lengths) == [2048, 6144]
    for step, path in videos:
        frames = reading.frames(path)
        assert frames.shape == ((lengths[step] + 1) // 2, 400, 600, 3)
        assert reading.seconds(path) == pytest.approx(len(frames) / 25, abs=0.05)
        assert (frames[0] != frames[-1]).any()


def test_a_run_that_fails_keeps_what_it_logged(project: str) -> None:
    """What was logged before an exception is stored: rows, hyperparameters and the video."""
    done = run_python("-c", FAIL_AT_THIRD_BATCH, "--project", project, "--name", "broken", "--videos", "1")
    assert done.returncode == 1
    assert "RuntimeError: the third batch is bad" in done.stderr
    assert [step for step, _ in reading.series(project, "train/reward", "broken")] == [2048, 4096]
    assert reading.config(project, "broken")["optim/lr"] == 1e-3
    assert [step for step, _ in reading.media(project, "eval/video", "broken")] == [2048]


def test_get_logger_finds_the_logger_by_name(project: str) -> None:
    """``get_logger.py`` imports nothing of this package, and gets its logger: one row an episode, with a histogram."""
    assert "import torchrl_trackio" not in (EXAMPLES / "get_logger.py").read_text()
    done = run_python(EXAMPLES / "get_logger.py", "--project", project, "--episodes", "3")
    assert done.returncode == 0, done.stderr
    assert "TrackioLogger(exp_name='random-policy'" in done.stdout
    names = {"episode/reward", "episode/worst_step", "episode/length", "episode/action"}
    rows = reading.rows(project, "random-policy")
    assert [(step, metrics.keys()) for step, metrics in rows] == [(step, names) for step in range(3)]
    assert reading.config(project, "random-policy") == {"env/name": "Pendulum-v1", "policy": "random"}


def test_the_trainer_logs_one_row_a_batch(project: str) -> None:
    """``trainer.py``: what the Trainer and its hooks log for a batch is one row at the frames collected so far."""
    done = run_python(EXAMPLES / "trainer.py", "--project", project, "--frames", "600")
    assert done.returncode == 0, done.stderr
    rows = reading.rows(project, "dqn-seed-0")
    assert [step for step, _ in rows] == [200, 400, 600]
    for _, metrics in rows:
        assert metrics.keys() >= {"longest_episode", "q_value", "loss", "optim_steps"}
    assert reading.config(project, "dqn-seed-0").items() >= {"frames": 600, "lr": 1e-3, "seed": 0}.items()


def test_llm_traces_logs_conversations_beside_curves(project: str) -> None:
    """``llm_traces.py``: a row of curves and eight conversations an iteration, each with reward, call and answer."""
    done = run_python(EXAMPLES / "llm_traces.py", "--project", project, "--iterations", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"trackio show --project {project}\n")
    curves = reading.rows(project, "grpo-seed-0")
    assert [step for step, _ in curves] == list(range(5))
    columns = "step, messages, metadata"
    traces = reading.query(project, f"SELECT {columns} FROM traces WHERE key = 'conversations' ORDER BY step")
    assert [step for step, _, _ in traces] == [step for step in range(5) for _ in range(8)]
    for step, metrics in curves:
        rewards = [json.loads(metadata)["return"] for at, _, metadata in traces if at == step]
        assert metrics["train/reward"] == pytest.approx(sum(rewards) / 8)
    for _, messages, metadata in traces:
        system, question, call, result, answer = json.loads(messages)
        roles = [message["role"] for message in (system, question, call, result, answer)]
        assert roles == ["system", "user", "assistant", "tool", "assistant"]
        assert result["tool_call_id"] == call["tool_calls"][0]["id"]
        assert json.loads(metadata)["reward"][0] == 0
    assert curves[-1][1]["train/reward"] > curves[0][1]["train/reward"]
