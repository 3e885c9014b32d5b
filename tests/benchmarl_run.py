"""BenchMARL with ``loggers=["trackio"]``: experiments, a restored one and a benchmark, and what is stored of them.

BenchMARL pins other versions of torchrl and PyAV than the tests use, so it runs in an environment of its own::

    pip install "torch==2.13.0" benchmarl vmas "torchrl>=0.10,<0.12" "av<14" trackio wrapt
    pip uninstall --yes torchvision  # if PyPI's is not for the installed torch; BenchMARL does not import it
    pip install --no-deps .
    python tests/benchmarl_run.py

Prints what it has checked and exits with 0, or says what it has found instead and exits with 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

if len(sys.argv) == 1:  # otherwise the parent process has named the folder
    os.environ["TRACKIO_DIR"] = tempfile.mkdtemp(prefix="torchrl-trackio-benchmarl-")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.benchmark import Benchmark
from benchmarl.environments import VmasTask
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from torch import nn

import reading
from torchrl_trackio import lifecycle

PROJECT = "benchmarl-tests"
FRAMES = 60  # of a batch: two environments of thirty steps
MODEL = MlpConfig(num_cells=[8], layer_class=nn.Linear, activation_class=nn.Tanh)
ALWAYS = {"collection_reward_reward_mean", "train_agents_loss_objective", "timers_total_time", "counters_iter"}
EVALUATED = {"eval_reward_episode_reward_mean", "timers_evaluation_time"}


def config(folder: Path, iterations: int, **options: object) -> ExperimentConfig:
    """A configuration for experiments that take a second."""
    config = ExperimentConfig.get_from_yaml()
    config.loggers = ["trackio"]
    config.project_name = PROJECT
    config.save_folder = str(folder)
    config.max_n_frames, config.max_n_iters = None, iterations
    config.on_policy_collected_frames_per_batch = config.on_policy_minibatch_size = FRAMES
    config.on_policy_n_envs_per_worker, config.on_policy_n_minibatch_iters = 2, 1
    config.evaluation_interval, config.evaluation_episodes = 2 * FRAMES, 2
    config.render = False
    for name, value in options.items():
        setattr(config, name, value)
    return config


def task() -> VmasTask:
    """VMAS's ``balance``, in episodes of ten steps."""
    task = VmasTask.BALANCE.get_from_yaml()
    task.config.update(max_steps=10, n_agents=2)
    return task


def check(what: str, found: object, expected: object) -> None:
    """Print what holds; exit where it does not."""
    if found != expected:
        sys.exit(f"FAILED: {what}\n   found {found!r}\nexpected {expected!r}")
    print(f"ok: {what}", flush=True)


def check_run(name: str, iterations: int) -> None:
    """One run, one row an iteration and one more for each evaluation's video, every metric at every iteration."""
    found = reading.query(PROJECT, "SELECT DISTINCT run_id FROM metrics WHERE run_name = ?", name)
    check(f"{name} is one run", len(found), 1)
    rows = [(step, row) for step, row in reading.rows(PROJECT, name) if "eval_video" not in row and row]
    check("... with one row an iteration", [step for step, _ in rows], list(range(iterations)))
    expected = [ALWAYS | (EVALUATED if step in (0, 1, 3) else set()) for step, _ in rows]
    missing = [sorted(names - row.keys()) for names, (_, row) in zip(expected, rows, strict=True)]
    check("... that holds the metrics of collection, training, evaluation and timers", missing, [[]] * iterations)
    check("... all of them numbers", {type(value) for _, row in rows for value in row.values()} - {float, int}, set())
    frames = [row["counters_total_frames"] for _, row in rows]
    check("... and counts on", frames, [FRAMES * (i + 1) for i in range(iterations)])
    (group,) = reading.query(PROJECT, "SELECT json_extract(config, '$._Group') FROM configs WHERE run_name = ?", name)
    check("... in its task's group", group, ("balance",))


def check_config(name: str, expected: dict[str, object]) -> None:
    """The nested and odd hyperparameters of BenchMARL."""
    stored = reading.config(PROJECT, name)
    check(f"{name} has its hyperparameters", {key: stored.get(key) for key in expected}, expected)


def run_one(folder: Path) -> tuple[Experiment, bool]:
    """An experiment of two iterations, with a video where this machine can render."""
    experiment = Experiment(
        task=task(),
        algorithm_config=MappoConfig.get_from_yaml(),
        model_config=MODEL,
        seed=0,
        config=config(folder, 2, checkpoint_at_end=True, render=can_render()),
    )
    experiment.run()
    return experiment, experiment.config.render


def can_render() -> bool:
    """Whether VMAS can draw a frame here: it needs a display or EGL."""
    import vmas

    try:
        frame = vmas.make_env("balance", num_envs=1).render(mode="rgb_array")
    except Exception as error:  # noqa: BLE001 - whatever pyglet raises
        print(f"no rendering here: {type(error).__name__}: {error}")
        return False
    return frame is not None


def restore(folder: str, iterations: int) -> None:
    """Go on with the experiment in a folder until it has that many iterations."""
    newest = max(Path(folder, "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime)
    Experiment.reload_from_file(str(newest), {"max_n_iters": iterations}).run()


def benchmark(folder: str) -> None:
    """Two experiments after each other."""
    Benchmark(
        algorithm_configs=[MappoConfig.get_from_yaml(), IppoConfig.get_from_yaml()],
        tasks=[task()],
        seeds={0},
        experiment_config=config(Path(folder), 2),
        model_config=MODEL,
    ).run_sequential()


def in_new_process(*arguments: str) -> None:
    """Run this script with arguments; BenchMARL closes W&B's loggers only, so that the process's end closes ours."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    check(f"a new process: {arguments[0]}\n{done.stderr if done.returncode else ''}".strip(), done.returncode, 0)


def main() -> None:
    """Check it all."""
    folder = Path(tempfile.mkdtemp(prefix="benchmarl-"))
    first, rendered = run_one(folder)
    restore(str(first.folder_name), 3)
    for run in list(lifecycle.live):
        run.flush()
    check("loggers=['trackio'] is this package's", type(first.logger.loggers[0]).__module__, "torchrl_trackio.logger")
    check_run(first.name, 3)
    odd = {"model_config/activation_class": "Tanh", "model_config/layer_class": "Linear", "model_config/num_cells": [8]}
    nested = {"experiment_config/lr": 5e-5, "task_config/n_agents": 2, "algorithm_config/clip_epsilon": 0.2, "seed": 0}
    names = {"algorithm_name": "mappo", "task_name": "balance", "environment_name": "vmas", "on_policy": True}
    check_config(first.name, {**odd, **nested, **names, "experiment_config/max_n_iters": 3})
    if rendered:
        videos = reading.media(PROJECT, "eval_video", first.name)
        shapes = [reading.frames(path).shape for _, path in videos]
        check("its evaluation was filmed", ([step for step, _ in videos], len(shapes)), ([0, 1], 2))
        print(f"    frames {shapes}")

    in_new_process("restore", str(first.folder_name), "4")
    check_run(first.name, 4)
    check_config(first.name, {**odd, **nested, **names, "experiment_config/max_n_iters": 4})

    in_new_process("benchmark", str(folder))
    found = [name for (name,) in reading.query(PROJECT, "SELECT DISTINCT run_name FROM configs ORDER BY id")]
    check("a benchmark's experiments are runs", [name.split("_")[0] for name in found], ["mappo", "mappo", "ippo"])
    for name in found[1:]:
        check_run(name, 2)
        check_config(name, {**odd, **nested, "algorithm_name": name.split("_")[0]})
    check("there are no other runs", len(reading.run_ids(PROJECT)), 3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["restore"]:
        restore(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["benchmark"]:
        benchmark(sys.argv[2])
    else:
        main()
