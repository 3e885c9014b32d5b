"""A DQN in torchrl's own Trainer, whose hooks log to Trackio.

Run it with ``python examples/trainer.py``, then see it with ``trackio show --project cartpole-trainer``.
"""

from __future__ import annotations

import argparse

import torch
from tensordict.nn import TensorDictSequential
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import Compose, GymEnv, InitTracker, RewardSum, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate
from torchrl.trainers import LogScalar, ReplayBufferTrainer, Trainer

from torchrl_trackio import TrackioLogger

try:
    from torchrl.collectors import Collector
except ImportError:  # its name before torchrl 0.11
    from torchrl.collectors import SyncDataCollector as Collector


def make_trainer(logger: TrackioLogger, frames: int, seed: int, lr: float) -> Trainer:
    """A trainer that logs what its hooks are asked for, its losses and its gradient norm, once per batch."""
    env = GymEnv("CartPole-v1", categorical_action_encoding=True)
    env = TransformedEnv(env, Compose(InitTracker(), RewardSum(), StepCounter()))
    network = MLP(in_features=4, out_features=2, num_cells=[120, 84])
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
    explore = EGreedyModule(env.action_spec, annealing_num_steps=frames // 2, eps_end=0.05)
    collector = Collector(env, TensorDictSequential(actor, explore), frames_per_batch=200, total_frames=frames)

    loss_module = DQNLoss(actor, action_space=env.action_spec, delay_value=True)
    loss_module.make_value_estimator(gamma=0.99)
    target_updater = SoftUpdate(loss_module, tau=0.02)
    trainer = Trainer(
        collector=collector,
        total_frames=frames,
        frame_skip=1,
        optim_steps_per_batch=25,
        loss_module=loss_module,
        optimizer=torch.optim.Adam(loss_module.parameters(), lr=lr),
        clip_norm=10.0,
        logger=logger,
        log_interval=0,  # every batch; the default is every 10,000 frames
        seed=seed,
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=128)
    ReplayBufferTrainer(buffer, batch_size=128, flatten_tensordicts=True).register(trainer)
    episode = {"key": ("next", "step_count"), "logname": "longest_episode", "reduction": "max", "include_std": False}
    LogScalar(**episode, log_pbar=True).register(trainer)
    LogScalar("chosen_action_value", "q_value").register(trainer)
    trainer.register_op("post_optim", target_updater.step)
    trainer.register_op("post_steps", lambda: explore.step(200))
    return trainer


def main() -> None:
    """Train, and say where the run is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="cartpole-trainer", help="Trackio's project")
    parser.add_argument("--frames", type=int, default=10_000, help="environment steps to train for")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    torch.manual_seed(args.seed)
    with TrackioLogger(f"dqn-seed-{args.seed}", project=args.project) as logger:
        logger.log_hparams(vars(args))
        make_trainer(logger, args.frames, args.seed, args.lr).train()
    print(logger)


if __name__ == "__main__":
    main()
