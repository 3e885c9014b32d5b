"""Torchrl finds the installed logger by its name: nothing here imports torchrl_trackio.

Run it with ``python examples/get_logger.py``.
"""

from __future__ import annotations

import argparse

from torchrl.envs import GymEnv
from torchrl.record.loggers import get_logger


def main() -> None:
    """Log a few episodes of a random policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="pendulum", help="Trackio's project")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()

    # The same call, with "csv" or "wandb" in place of "trackio", builds torchrl's other loggers.
    logger = get_logger("trackio", "logs", "random-policy", trackio_kwargs={"project": args.project})
    logger.log_hparams({"env": {"name": "Pendulum-v1"}, "policy": "random"})
    env = GymEnv("Pendulum-v1")
    env.set_seed(0)
    for number in range(args.episodes):
        episode = env.rollout(200)
        reward = episode["next", "reward"]
        metrics = {"episode": {"reward": reward.sum(), "worst_step": reward.min(), "length": len(episode)}}
        logger.log_metrics(metrics, step=number)
        logger.log_histogram("episode/action", episode["action"], step=number)
    logger.experiment.finish()  # on any version of torchrl; from 0.14 on, also logger.shutdown()
    print(logger)


if __name__ == "__main__":
    main()
