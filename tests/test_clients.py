"""What others wrote: torchrl's training scripts, Trainer, checkpoints, monitor, video recorders and Hydra nodes."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose, EnvBase, GymEnv, GymWrapper, ParallelEnv, SerialEnv, TransformedEnv
from torchrl.record import PixelRenderTransform, VideoRecorder

import clients
import reading
from children import Child
from torchrl_trackio import TrackioLogger

HAS_CHECKPOINTS = importlib.util.find_spec("torchrl.checkpoint") is not None
newest_torchrl = pytest.mark.skipif(not HAS_CHECKPOINTS, reason="torchrl < 0.14 has no torchrl.checkpoint")

KINDS = ["state_dict", "torch", "checkpoint"] if HAS_CHECKPOINTS else ["state_dict", "torch"]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A project with trainings that began here and went on in another process, from each kind of checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for kind in KINDS:
        clients.start(kind, folder, "restarted")
    done = Child(reading.folder(), prelude=f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n").run(
        f"""
        import gc, pathlib, clients
        for kind in {KINDS}:
            clients.restart(kind, pathlib.Path({str(folder)!r}), "restarted")
        cfg = clients.make_cfg("ended")
        clients.train(cfg, dict(cfg), at_once=False)
        gc.collect()
        """
    )
    assert done.returncode == 0, done.stderr
    return "restarted"


@pytest.fixture(scope="module")
def ended(restarted: str) -> str:  # noqa: ARG001 - by the same process, to save seconds
    """A project with a training script whose process has just ended."""
    return "ended"


# Training scripts

CONFIG = {
    "env/env_name": "HalfCheetah-v4",
    "env/max_episode_steps": None,
    "env/seed": "???",
    "collector/frames_per_batch": 200,
    "collector/total_frames": 1000,
    "optim/lr": 3e-4,
    "optim/betas": [0.9, 0.999],
    "optim/anneal/lr": True,
    "optim/anneal/after": 1000,
    "logger/backend": "trackio",
    "logger/group_name": "ppo",
    "logger/mode": "online",
}
ROWS = [
    (
        200 * (batch + 1),
        {f"train/loss_{k}": batch + k / 8 for k in range(20)}
        | {"train/lr": 3e-4 * (1 - batch / 5), "train/entropy": batch}
        | ({"eval/reward": batch, "eval/episodes": batch} if batch % 2 else {}),
    )
    for batch in range(5)
]


def check_training(project: str) -> None:
    """One run, in its group, with one row a step and every leaf of the configuration."""
    ((name, group),) = reading.query(project, "SELECT run_name, json_extract(config, '$._Group') FROM configs")
    assert name.startswith("PPO_HalfCheetah-v4_")
    assert group == "ppo"
    config = reading.config(project, name)
    assert config == {**CONFIG, "logger/project_name": project}
    assert reading.rows(project, name) == ROWS
    assert len(reading.run_ids(project)) == 1


@pytest.mark.parametrize("as_config", [dict, lambda cfg: cfg], ids=["dict of DictConfigs", "DictConfig"])
@pytest.mark.parametrize("at_once", [True, False], ids=["log_metrics", "log_scalar"])
def test_a_training_script_loses_nothing(project: str, as_config: Callable[[Any], Any], at_once: bool) -> None:
    """What torchrl's scripts pass for W&B arrives, and every metric has its curve."""
    cfg = clients.make_cfg(project)
    logger = clients.train(cfg, as_config(cfg), at_once=at_once)
    assert type(logger) is TrackioLogger
    logger.experiment.finish()
    check_training(project)


def test_a_training_script_may_just_end(ended: str) -> None:
    """Nobody closes the logger, which is garbage before the interpreter ends: its last row is stored all the same."""
    check_training(ended)


# Trainer and checkpoints


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_loaded_in_a_new_process_continues_its_run(kind: str, restarted: str) -> None:
    """No second run, though the script made a fresh logger and gave it hyperparameters first; counts go on."""
    for table in ("metrics", "configs"):
        sql = f"SELECT COUNT(DISTINCT run_id) FROM {table} WHERE run_name = ?"
        assert reading.query(restarted, sql, kind) == [(1,)]
    assert reading.series(restarted, "episode/reward", kind) == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert reading.config(restarted, kind) == {"optim/lr": 0.2, "optim/eps": 0.0, "restarts": 1}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_trainers_losses_are_stored(kind: str, restarted: str) -> None:
    """Losses and rewards come as 0-d tensors; all of a batch is one row, before and after the restart."""
    rows = [(step, row) for step, row in reading.rows(restarted, kind) if row and "episode/reward" not in row]
    assert [step for step, _ in rows] == [32, 64, 96, 128]
    assert [row["optim_steps"] for _, row in rows] == [2, 4, 6, 8]
    for _, row in rows:
        assert set(row) == {"loss", "grad_norm_0", "optim_steps", "reward"}
        assert row["loss"] > 0
        assert row["reward"] == 1.0


def test_a_restart_makes_no_other_run(restarted: str) -> None:
    """Project and name of the saved run are taken, and of what the loggers were made with nothing is left."""
    for table in ("metrics", "configs"):
        names = reading.query(restarted, f"SELECT DISTINCT run_name FROM {table} ORDER BY run_name")
        assert names == [(kind,) for kind in sorted(KINDS)]
    assert len(reading.run_ids(restarted)) == len(KINDS)
    assert reading.run_ids("q") == set()


def test_a_loaded_logger_is_the_saved_runs(logger: TrackioLogger, project: str) -> None:
    """It has that run's name, which scripts make up anew at each start, and files media under it."""
    logger.log_scalar("x", 1.0, step=7)
    with TrackioLogger("another name", project, group="g") as again:
        again.load_state_dict(logger.state_dict())
        assert (again.exp_name, again.experiment.name, again.experiment.id) == ("run", "run", logger.experiment.id)
        again.log_video("video", torch.zeros(1, 3, 8, 8), step=8)
    ((step, path),) = reading.media(project, "video")
    assert (step, path.parent.parent.name) == (8, "run")


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_run_that_is_still_open_here_can_be_continued(resume: str, logger: TrackioLogger, project: str) -> None:
    """BenchMARL closes no logger before it restores an experiment; what waits to be written is found all the same."""
    logger.log_hparams({"lr": 0.1})
    logger.log_scalar("x", 1.0, step=7)
    with TrackioLogger("run", project, resume=resume) as again:
        again.log_scalar("x", 2.0)
    assert again.experiment.id == logger.experiment.id
    assert reading.series(project, "x") == [(7, 1.0), (8, 2.0)]
    assert reading.config(project) == {"lr": 0.1}


REFUSED = (
    r"This TrackioLogger logs to run '{id}' but the checkpoint was written by run '{saved}'\. Construct the logger for "
    r"the saved run before loading, e\.g\. get_logger\(\.\.\., state_dict=saved_state\)\.$"
)


def test_a_live_logger_refuses_the_state_of_another_run(logger: TrackioLogger, project: str) -> None:
    """As W&B's does, in torchrl's words; it goes on where it was."""
    with TrackioLogger("run", project) as other:
        other.log_scalar("x", 1.0, step=7)
        saved = other.state_dict()
    logger.log_scalar("x", 2.0)
    with pytest.raises(RuntimeError, match="^" + REFUSED.format(id=logger.experiment.id, saved=other.experiment.id)):
        logger.load_state_dict(saved)
    logger.log_scalar("x", 3.0)
    logger.flush()
    assert reading.series(project, "x") == [(7, 1.0), (0, 2.0), (1, 3.0)]


@newest_torchrl
def test_a_checkpoint_of_another_run_is_refused(logger: TrackioLogger, project: str, tmp_path: Path) -> None:
    """``torchrl.checkpoint`` says which component failed and why."""
    from torchrl.checkpoint import Checkpoint, CheckpointError

    with TrackioLogger("run", project) as other:
        other.log_scalar("x", 1.0)
        Checkpoint(logger=other).save(tmp_path / "checkpoint")
    logger.log_scalar("x", 2.0)
    reason = REFUSED.format(id=logger.experiment.id, saved=other.experiment.id)
    with pytest.raises(CheckpointError, match="^Failed to load checkpoint component 'logger': " + reason):
        Checkpoint(logger=logger).load(tmp_path / "checkpoint")


# LoggerMonitor


def test_a_monitor_logs_from_a_thread_of_its_own(logger: TrackioLogger, project: str) -> None:
    """Snapshots of a collector and a replay buffer, at their own steps, beside what the training logs."""
    monitoring = pytest.importorskip("torchrl.record.loggers.monitoring", reason="torchrl < 0.14 has no LoggerMonitor")
    collector = clients.Collector(GymEnv("CartPole-v1"), None, frames_per_batch=16, total_frames=64)
    buffer = ReplayBuffer(storage=LazyTensorStorage(100))
    with monitoring.LoggerMonitor(logger, poll_interval=0.05, on_error="raise") as monitor:
        monitor.watch(collector, name="collector", schedule=monitoring.Every.counter("frames", 16))
        monitor.watch(buffer, name="buffer", step="write_count")
        for number, batch in enumerate(collector):
            buffer.extend(batch)
            for name in ("loss", "reward"):
                logger.log_scalar(name, float(number), step=number)
            time.sleep(0.15)
    collector.shutdown()
    logger.flush()
    for name, counter in (("collector", "frames"), ("buffer", "write_count")):
        rows = [(step, row) for step, row in reading.rows(project) if f"{name}/{counter}" in row]
        steps = [step for step, _ in rows]
        assert [row[f"{name}/{counter}"] for _, row in rows] == steps == sorted(steps)
        assert (len(steps) > 1, steps[-1]) == (True, 64)
        rates = {"frames": "frames_per_second", "write_count": "writes_per_second"}
        assert all(f"{name}/{rates[counter]}" in row for _, row in rows[1:])
    assert reading.series(project, "buffer/size")[-1] == (64, 64.0)
    for name in ("loss", "reward"):
        assert reading.series(project, name) == [(number, float(number)) for number in range(4)]


# VideoRecorder


class Screen(gymnasium.Env):
    """Shows a screen of one colour, which grows brighter by the step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 - gymnasium's way
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = "rgb_array"

    def __init__(self, height: int, width: int, dark: int) -> None:
        self.shape, self.dark, self.time = (height, width, 3), dark, 0

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Turn dark."""
        super().reset(**kwargs)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Turn brighter."""
        self.time += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self) -> np.ndarray:
        """The screen."""
        return np.full(self.shape, self.dark + 30 * self.time, np.uint8)


def make_screen(height: int = 210, width: int = 160, dark: int = 10, *, render: bool = False) -> EnvBase:
    """An environment with frames as large as Atari's; with ``render``, drawn by torchrl's transform."""
    if render:
        return TransformedEnv(GymWrapper(Screen(height, width, dark)), PixelRenderTransform())
    return GymWrapper(Screen(height, width, dark), from_pixels=True, pixels_only=True)


def brightness(path: Path) -> list[list[int]]:
    """Of each frame, that of its left and of its right half, in tens."""
    frames = reading.frames(path).astype(float)
    middle = frames.shape[2] // 2
    return [[round(half.mean() / 10) for half in (frame[:, :middle], frame[:, middle:])] for frame in frames]


@pytest.mark.parametrize(
    ("options", "size"),
    [
        pytest.param({}, (210, 160), id="Atari's size"),
        pytest.param({"height": 33, "width": 51}, (34, 52), id="odd size"),
        pytest.param({"render": True}, (210, 160), id="PixelRenderTransform"),
    ],
)
def test_a_recorder_films_an_environment(
    options: dict[str, Any], size: tuple[int, int], logger: TrackioLogger, project: str
) -> None:
    """Each dump is a video of all frames, at the recorder's speed and count, beside the scalars of frame counts."""
    recorder = VideoRecorder(logger, tag="eval/video", skip=1, fps=10)
    env = make_screen(**options).append_transform(recorder)
    for episode in range(2):
        env.rollout(4)
        logger.log_scalar("train/reward", 1.0, step=1000 * (episode + 1))
        recorder.dump(suffix=f"episode{episode}")
    env.close()
    logger.flush()
    for episode in range(2):
        ((step, path),) = reading.media(project, f"eval/video_episode{episode}")
        assert (step, reading.seconds(path)) == (episode, 0.5)
        assert reading.frames(path).shape == (5, *size, 3)
        assert brightness(path) == [[1, 1], [4, 4], [7, 7], [10, 10], [13, 13]]
    assert reading.series(project, "train/reward") == [(1000, 1.0), (2000, 1.0)]


@pytest.mark.parametrize(
    ("batched", "render"),
    [
        pytest.param(SerialEnv, True, id="SerialEnv, PixelRenderTransform"),
        pytest.param(partial(ParallelEnv, mp_start_method="fork"), False, id="ParallelEnv"),
    ],
)
def test_a_recorder_films_a_batch_of_environments(
    batched: Callable[..., EnvBase], render: bool, logger: TrackioLogger, project: str
) -> None:
    """One after another, or side by side where torchrl tiles them without torchvision."""
    tiles = HAS_CHECKPOINTS or importlib.util.find_spec("torchvision") is not None
    env = batched(2, [partial(make_screen, dark=dark, render=render) for dark in (10, 110)])
    recorders = {tag: VideoRecorder(logger, tag=tag, skip=1, make_grid=tag == "grid") for tag in ("row", "grid")}
    env = TransformedEnv(env, Compose(*recorders.values()) if tiles else recorders["row"])
    env.rollout(2)
    env.transform.dump()
    env.close()
    logger.flush()
    ((step, path),) = reading.media(project, "row")
    assert (step, reading.frames(path).shape) == (0, (6, 210, 160, 3))
    assert brightness(path) == [[1, 1], [11, 11], [4, 4], [14, 14], [7, 7], [17, 17]]
    if tiles:
        ((step, path),) = reading.media(project, "grid")
        assert (step, reading.frames(path).shape) == (0, (3, 210, 320, 3))
        assert brightness(path) == [[1, 11], [4, 14], [7, 17]]


# Hydra


def compose(*overrides: str) -> Any:
    """The logger that a configuration with ``logger: trackio`` describes, built as torchrl's trainers build theirs."""
    import hydra
    import torchrl.trainers.algorithms.configs  # noqa: F401 - registers torchrl's nodes
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="clients", node={"defaults": ["_self_", {"logger": "trackio"}]})
    with hydra.initialize(version_base=None, config_path=None):
        return hydra.utils.instantiate(hydra.compose("clients", list(overrides)).logger)


def test_hydra_takes_every_option(project: str) -> None:
    """``logger=trackio`` with its own options and, as ``trackio_kwargs``, this class's and ``trackio.init``'s."""
    node = ["logger.exp_name=run", f"logger.project={project}", "logger.video_fps=12"]
    given = ["group=g", "config={optim:{lr:0.1,betas:[0.9,0.999]}}", "auto_log_gpu=false", "auto_log_cpu=false"]
    logger = compose(*node, *(f"+logger.trackio_kwargs.{each}" for each in given))
    assert type(logger) is TrackioLogger
    logger.log_video("video", np.zeros((6, 8, 8, 3), np.uint8), step=3)
    logger.close()
    ((_, path),) = reading.media(project, "video")
    assert reading.seconds(path) == 0.5
    assert reading.config(project) == {"optim/lr": 0.1, "optim/betas": [0.9, 0.999]}
    assert reading.query(project, "SELECT json_extract(config, '$._Group') FROM configs") == [("g",)]

    again = compose(
        *node, *(f"+logger.trackio_kwargs.{each}" for each in ("resume=must", "rank_zero_only=true", "video_fps=24"))
    )
    assert (again.experiment.id, again.video_fps) == (logger.experiment.id, 24)
    again.close()


def test_hydra_refuses_an_unknown_option(project: str) -> None:
    """Nothing given is swallowed."""
    hydra = pytest.importorskip("hydra.errors")
    with pytest.raises(hydra.InstantiationException, match=r"unknown options 'nonsense'; trackio\.init takes "):
        compose("logger.exp_name=run", f"logger.project={project}", "+logger.trackio_kwargs.nonsense=1")
