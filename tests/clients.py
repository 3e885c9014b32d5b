"""Clients of torchrl's loggers, written as others write them, for tests and the processes that they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, RewardSum, TransformedEnv
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss
from torchrl.record.loggers import Logger, generate_exp_name, get_logger
from torchrl.trainers import ReplayBufferTrainer, Trainer

from torchrl_trackio import TrackioLogger

try:
    from torchrl.collectors import Collector
except ImportError:  # its name before torchrl 0.11
    from torchrl.collectors import SyncDataCollector as Collector

FRAMES_PER_BATCH = 32


def make_cfg(project: str) -> DictConfig:
    """The configuration of a training script, with an interpolation, a null and a value that nobody has given."""
    return OmegaConf.create(
        {
            "env": {"env_name": "HalfCheetah-v4", "max_episode_steps": None, "seed": "???"},
            "collector": {"frames_per_batch": 200, "total_frames": 1000},
            "optim": {"lr": 3e-4, "betas": [0.9, 0.999], "anneal": {"lr": True, "after": "${collector.total_frames}"}},
            "logger": {"backend": "trackio", "project_name": project, "group_name": "ppo", "mode": "online"},
        }
    )


def train(cfg: DictConfig, config: Any, *, at_once: bool) -> Logger:
    """What torchrl's training scripts do with their logger: ``wandb_kwargs``, whatever the backend, and no farewell."""
    logger = get_logger(
        cfg.logger.backend,
        logger_name="ppo_logging",
        experiment_name=generate_exp_name("PPO", cfg.env.env_name),
        wandb_kwargs={
            "mode": cfg.logger.mode,
            "config": config,
            "project": cfg.logger.project_name,
            "group": cfg.logger.group_name,
        },
    )
    for batch in range(5):
        frames = (batch + 1) * cfg.collector.frames_per_batch
        metrics = {f"train/loss_{k}": torch.tensor(batch + k / 8, requires_grad=True) for k in range(20)}
        metrics |= {"train/lr": cfg.optim.lr * (1 - batch / 5), "train/entropy": np.float32(batch)}
        if batch % 2:
            metrics |= {"eval/reward": torch.tensor([float(batch)]), "eval/episodes": np.int64(batch)}
        if at_once:
            logger.log_metrics(metrics, frames)
        else:
            for name, value in metrics.items():
                logger.log_scalar(name, value, frames)
    return logger


def make_trainer(logger: TrackioLogger | None, batches: int, **options: Any) -> Trainer:
    """A DQN on CartPole that has seen ``batches`` batches in the end, and logs at each."""
    frames = batches * FRAMES_PER_BATCH
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=True), RewardSum())
    actor = QValueActor(
        MLP(in_features=4, out_features=2, num_cells=[8]), in_keys=["observation"], spec=env.action_spec
    )
    loss_module = DQNLoss(actor, action_space=env.action_spec, delay_value=False)
    loss_module.make_value_estimator(gamma=0.99)
    trainer = Trainer(
        collector=Collector(env, actor, frames_per_batch=FRAMES_PER_BATCH, total_frames=frames),
        total_frames=frames,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss_module,
        optimizer=torch.optim.Adam(loss_module.parameters()),
        logger=logger,
        log_interval=0,  # every batch
        progress_bar=False,
        **options,
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=16)
    ReplayBufferTrainer(buffer, batch_size=16, flatten_tensordicts=True).register(trainer)
    if logger is not None and "checkpoint" not in options:  # which has the logger saved by itself
        trainer.register_module("logger", logger)
    trainer.register_op("pre_steps_log", lambda batch: {"reward": batch["next", "reward"].mean()})
    return trainer


def saving(kind: str, folder: Path) -> dict[str, Any]:
    """The options of a trainer that saves itself into a folder: as one ``torch`` file, or a ``checkpoint`` of 0.14."""
    options: dict[str, Any] = {"save_trainer_file": folder / kind}
    if kind == "checkpoint":
        from torchrl.checkpoint import Checkpoint

        options["checkpoint"] = Checkpoint()
    return options


def start(kind: str, folder: Path, project: str) -> None:
    """The first half of a training, in a run named like the kind of checkpoint that it saves in the end."""
    with TrackioLogger(kind, project, config={"optim": {"lr": 0.1, "eps": 0.0}}) as logger:
        for reward in range(2):
            logger.log_scalar("episode/reward", float(reward))
        if kind == "state_dict":
            torch.save(logger.state_dict(), folder / kind)
        else:
            make_trainer(logger, 2, **saving(kind, folder)).train()


def restart(kind: str, folder: Path, project: str) -> None:
    """The same script started again: it does what it did the first time, then loads, and ends without a farewell."""
    if kind == "state_dict":
        logger = get_logger("trackio", "", "new", state_dict=torch.load(folder / kind), trackio_kwargs={"project": "q"})
    else:
        logger = TrackioLogger(generate_exp_name(kind, "") if kind == "torch" else kind, project)
    logger.log_hparams({"optim": {"lr": 0.2}, "restarts": 1})
    if kind != "state_dict":
        trainer = make_trainer(logger, 4, **saving(kind, folder))
        trainer.load_from_file(folder / kind)
        trainer.train()
    logger.log_scalar("episode/reward", 2.0)
