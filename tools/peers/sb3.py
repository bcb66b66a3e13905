"""The driver for Stable-Baselines3 2.x, which it imports when it is called."""

from __future__ import annotations

import os
from typing import Any

from peers.progress import CORES, Progress


def drive(
    progress: Progress, *, envs: int = 32, n_steps: int = 20, threads: int = CORES, processes: bool = True
) -> None:
    """Trains A2C with Stable-Baselines3's Atari wrappers.

    Args:
      progress: receives a report before each rollout.
      envs: number of environments.
      n_steps: agent steps per rollout. An update uses `envs` x `n_steps` agent steps.
      threads: number of PyTorch's threads.
      processes: whether each environment has a process of its own (SubprocVecEnv, otherwise DummyVecEnv).
    """
    _rest_when_idle()
    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage
    from torch import nn

    class Torso(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any, features_dim: int = 256):
            super().__init__(observation_space, features_dim)
            convolutions = [nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU()]
            self.layers = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 9 * 9, features_dim), nn.ReLU())

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return self.layers(frames)

    class Report(BaseCallback):
        go_on = True

        def _on_rollout_start(self) -> None:
            self.go_on = progress.report(self.num_timesteps)

        def _on_step(self) -> bool:
            return self.go_on

    torch.set_num_threads(threads)
    games = make_atari_env(
        "ale_py:PongNoFrameskip-v4",
        envs,
        seed=1,
        wrapper_kwargs={"terminal_on_life_loss": False},
        vec_env_cls=SubprocVecEnv if processes else DummyVecEnv,
        vec_env_kwargs={"start_method": "fork"} if processes else {},  # forkserver would import PyTorch in each process
    )
    env = VecFrameStack(VecTransposeImage(games), 4, channels_order="first")
    network = {"features_extractor_class": Torso, "net_arch": []}
    model = A2C("CnnPolicy", env, n_steps=n_steps, ent_coef=0.01, policy_kwargs=network, device="cpu")
    model.learn(10**12, callback=Report(), log_interval=10**9)
    env.close()


def _rest_when_idle() -> None:
    """Makes idle threads of PyTorch sleep instead of spin, which leaves more CPU time for environments."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
