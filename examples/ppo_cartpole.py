"""PPO learns to balance CartPole in about a minute on a laptop's CPU, and Trackio shows how.

python examples/ppo_cartpole.py
trackio show --project cartpole
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.envs import Compose, EnvBase, GymEnv, InitTracker, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl.record import VideoRecorder
from tqdm import tqdm

from torchrl_trackio import TrackioLogger

try:
    from torchrl.collectors import Collector
except ImportError:  # its name before torchrl 0.11
    from torchrl.collectors import SyncDataCollector as Collector

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # CartPole is drawn with no screen


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--project", default="cartpole", help="Trackio's project")
    parser.add_argument("--name", help="the run's name; by default ppo-seed-<seed>")
    parser.add_argument("--frames", type=int, default=51_200, help="environment steps to train for")
    parser.add_argument("--videos", type=int, default=5, help="evaluation episodes to record")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate at the start")
    parser.add_argument("--seed", type=int, default=0, help="of the environments and the networks")
    return parser.parse_args()


def make_hparams(args: argparse.Namespace) -> dict[str, Any]:
    """All that shapes the training, nested."""
    return {
        "seed": args.seed,
        "total_frames": args.frames,
        "frames_per_batch": 2048,
        "num_envs": 16,
        "env": {"env_name": "CartPole-v1", "categorical_action_encoding": True},
        "gae": {"gamma": 0.99, "lmbda": 0.95},
        "loss": {"clip_epsilon": 0.2, "entropy_coeff": 0.01, "critic_coeff": 0.5, "normalize_advantage": True},
        "optim": {"lr": args.lr, "epochs": 10, "minibatch": 256, "max_grad_norm": 0.5},
    }


def make_train_env(hparams: dict[str, Any]) -> EnvBase:
    """Many CartPoles in one, each of which sums its rewards and counts its steps."""
    envs = SerialEnv(hparams["num_envs"], lambda: GymEnv(**hparams["env"]))
    env = TransformedEnv(envs, Compose(InitTracker(), RewardSum(), StepCounter()))
    env.set_seed(hparams["seed"])
    return env


def make_eval_env(hparams: dict[str, Any], logger: TrackioLogger) -> EnvBase:
    """One CartPole that is rendered: its ``transform`` is the recorder, which logs what it has seen when dumped."""
    env = GymEnv(**hparams["env"], from_pixels=True, pixels_only=False)
    env.set_seed(hparams["seed"])
    # Half of CartPole's 50 frames a second: the video plays in real time.
    return TransformedEnv(env, VideoRecorder(logger, tag="eval/video", skip=2, fps=25))


def make_networks(env: EnvBase) -> tuple[ProbabilisticActor, ValueOperator]:
    """The policy and the value of a state."""
    shape: dict[str, Any] = {"in_features": 4, "num_cells": [64, 64], "activation_class": nn.Tanh}
    logits = TensorDictModule(MLP(out_features=2, **shape), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        logits, spec=env.action_spec, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True
    )
    return actor, ValueOperator(MLP(out_features=1, **shape), in_keys=["observation"])


def optimise(
    batch: TensorDictBase, loss_module: ClipPPOLoss, optim: torch.optim.Optimizer, hparams: dict[str, Any]
) -> TensorDictBase:
    """Improve the networks with one batch; returns the losses and the gradient's norm, averaged over the updates."""
    settings, batch = hparams["optim"], batch.reshape(-1)
    updates = []
    for _ in range(settings["epochs"]):
        for indices in torch.randperm(len(batch)).split(settings["minibatch"]):
            losses = loss_module(batch[indices])
            loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optim.zero_grad()
            loss.backward()
            losses["grad_norm"] = nn.utils.clip_grad_norm_(loss_module.parameters(), settings["max_grad_norm"])
            optim.step()
            updates.append(losses.detach())
    return TensorDict.maybe_dense_stack(updates).mean(0)


def finished_episodes(batch: TensorDictBase) -> dict[str, torch.Tensor]:
    """Mean reward and length of the episodes that ended in this batch; nothing if none did."""
    done = batch["next", "done"]
    if not done.any():
        return {}
    return {
        "reward": batch["next", "episode_reward"][done].mean(),
        "episode_length": batch["next", "step_count"][done].float().mean(),
    }


@torch.no_grad()
def evaluate(env: EnvBase, actor: ProbabilisticActor, step: int) -> dict[str, Any]:
    """Play one episode with the most probable actions, and log its video."""
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        episode = env.rollout(500, actor)
    env.transform.iter = step  # torchrl 0.10 has no dump(step=...)
    env.transform.dump()
    return {"reward": episode["next", "reward"].sum(), "episode_length": len(episode)}


def train(hparams: dict[str, Any], logger: TrackioLogger, videos: int) -> None:
    """Collect, optimise, log; again until all frames are used."""
    torch.manual_seed(hparams["seed"])
    env, eval_env = make_train_env(hparams), make_eval_env(hparams, logger)
    actor, critic = make_networks(env)
    advantage = GAE(value_network=critic, **hparams["gae"])
    loss_module = ClipPPOLoss(actor, critic, **hparams["loss"])
    optim = torch.optim.Adam(loss_module.parameters(), lr=hparams["optim"]["lr"])

    total_frames, frames_per_batch = hparams["total_frames"], hparams["frames_per_batch"]
    iterations = math.ceil(total_frames / frames_per_batch)
    # Endless, since at the end of its frames a collector closes a SerialEnv, which then gives torch all threads.
    collector = Collector(env, actor, frames_per_batch=frames_per_batch, total_frames=-1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optim, 1.0, 0.1, total_iters=iterations)
    with_video = set(torch.linspace(0, iterations - 1, videos).int().tolist())

    with tqdm(total=total_frames, unit="frame") as bar:
        frames, start = 0, time.perf_counter()
        for iteration, batch in enumerate(itertools.islice(collector, iterations)):
            frames += batch.numel()
            with torch.no_grad():
                advantage(batch)
            episodes, updates = finished_episodes(batch), optimise(batch, loss_module, optim, hparams)
            speed = {"fps": batch.numel() / (time.perf_counter() - start), "lr": scheduler.get_last_lr()[0]}
            metrics = {"train": episodes | speed, "ppo": updates}
            if iteration in with_video:
                metrics["eval"] = evaluate(eval_env, actor, frames)
            logger.log_metrics(metrics, step=frames)
            logger.log_histogram("train/advantage", batch["advantage"], step=frames)
            start = time.perf_counter()
            scheduler.step()
            bar.update(batch.numel())
            if episodes:
                bar.set_postfix(reward=f"{episodes['reward'].item():.0f}")
    collector.shutdown()
    eval_env.close()


def main() -> None:
    """Train, and say where the run is."""
    args = parse_args()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    hparams = make_hparams(args)
    # Leaving the block stores everything that was logged, also if the training fails or is interrupted.
    with TrackioLogger(args.name or f"ppo-seed-{args.seed}", project=args.project) as logger:
        logger.log_hparams(hparams)
        train(hparams, logger, args.videos)
    run = logger.experiment
    print(f"Run {run.name!r} is in {run.place}. See it with\n  trackio show --project {run.project}")


if __name__ == "__main__":
    main()
