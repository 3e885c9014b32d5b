"""PPO on CartPole across a Ray cluster: the collectors and the training log to one run, through one logger service.

Run it with ``python examples/distributed_ray.py``, then see it with ``trackio show --project cartpole-ray``. Ray takes
this machine, or the cluster that the environment variable ``RAY_ADDRESS`` names.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import ray
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors.distributed import RayCollector
from torchrl.envs import Compose, EnvBase, GymEnv, InitTracker, RewardSum, StepCounter, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from torchrl_trackio import TrackioLogger


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--project", default="cartpole-ray", help="Trackio's project")
    parser.add_argument("--collectors", type=int, default=2, help="Ray actors that collect, a CPU each")
    parser.add_argument("--frames", type=int, default=32_768, help="environment steps to train for")
    parser.add_argument("--batch", type=int, default=2048, help="environment steps between two updates of the policy")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_env() -> EnvBase:
    """A CartPole that counts its rewards and steps."""
    env = GymEnv("CartPole-v1", categorical_action_encoding=True)
    return TransformedEnv(env, Compose(InitTracker(), RewardSum(), StepCounter()))


def make_networks() -> tuple[ProbabilisticActor, ValueOperator]:
    """The policy and the value of a state."""
    policy = TensorDictModule(MLP(4, 2, num_cells=[64, 64]), in_keys=["observation"], out_keys=["logits"])
    chosen: dict[str, Any] = {"in_keys": ["logits"], "distribution_class": Categorical, "return_log_prob": True}
    actor = ProbabilisticActor(policy, spec=make_env().action_spec, **chosen)
    return actor, ValueOperator(MLP(4, 1, num_cells=[64, 64]), in_keys=["observation"])


class LogEpisodes:
    """Runs in a collector after each batch, and logs the episodes that ended in it."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name, self.frames = client, name, 0

    def __call__(self, batch: TensorDictBase) -> None:
        """Log them at the collector's own count of frames."""
        self.frames += batch.numel()
        done = batch["next", "done"]
        if done.any():
            reward = batch["next", "episode_reward"][done]
            self.client.log_metrics({self.name: {"reward": reward.mean(), "episodes": len(reward)}}, step=self.frames)


def train(args: argparse.Namespace, logger: Any) -> None:
    """Collect on all machines, optimise on this one."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # networks this small gain nothing from more
    actor, critic = make_networks()
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    loss_module = ClipPPOLoss(actor, critic, entropy_coeff=0.01, critic_coeff=0.5, normalize_advantage=True)
    optim = torch.optim.Adam(loss_module.parameters(), lr=args.lr)
    # A client counts its calls, so that each collector needs one of its own.
    hooks = [LogEpisodes(logger.client(), f"collector{i}") for i in range(args.collectors)]
    collector = RayCollector(
        [make_env] * args.collectors,
        actor,
        sync=True,
        frames_per_batch=args.batch,
        total_frames=args.frames,
        collector_kwargs=[{"post_collect_hook": hook} for hook in hooks],
        remote_configs={"num_cpus": 1},
    )
    collector.set_seed(args.seed)
    collector.update_policy_weights_(actor)
    frames, start = 0, time.perf_counter()
    for batch in collector:
        frames += batch.numel()
        with torch.no_grad():
            advantage(batch)
        samples = batch.reshape(-1)
        for indices in torch.cat([torch.randperm(len(samples)) for _ in range(6)]).split(128):
            losses = loss_module(samples[indices])
            optim.zero_grad()
            (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
            nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
            optim.step()
        fps = batch.numel() / (time.perf_counter() - start)
        logger.log_metrics({"ppo": losses.detach().to_dict(), "train": {"fps": fps}}, step=frames)
        collector.update_policy_weights_(actor)
        start = time.perf_counter()


def main() -> None:
    """Train, and say where the run is."""
    args = parse_args()
    ray.init(log_to_driver=False)  # torchrl's collectors print much
    # The run is stored on the machine that Ray chooses for the service; with server_url=..., on a Trackio server.
    with TrackioLogger(f"ppo-seed-{args.seed}", args.project, service_backend="ray") as logger:
        logger.log_hparams(vars(args))
        train(args, logger)
        print(f"{logger}: see it with\n  trackio show --project {args.project}")


if __name__ == "__main__":
    main()
