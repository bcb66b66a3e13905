"""Trains Stable-Baselines3 2.x, which is imported when a driver is called."""

from __future__ import annotations

import os
from typing import Any

from peers.progress import CORES, Progress


def drive(
    progress: Progress, *, envs: int = 32, n_steps: int = 20, threads: int = CORES, processes: bool = True
) -> None:
    """Stable-Baselines3's A2C on its own Atari wrappers: synchronous, a batch of `envs` x `n_steps` an update.

    Args:
      progress: reported before each rollout, when the one before has been learned.
      envs: environments; with `processes` each has its own, else they are stepped one after the other.
      n_steps: agent steps of a rollout.
      threads: of PyTorch.
      processes: SubprocVecEnv, else DummyVecEnv.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin take the cores from the environments
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
        vec_env_kwargs={"start_method": "fork"} if processes else {},  # by forkserver each process imports PyTorch: 3 s
    )
    env = VecFrameStack(VecTransposeImage(games), 4, channels_order="first")
    network = {"features_extractor_class": Torso, "net_arch": []}
    model = A2C("CnnPolicy", env, n_steps=n_steps, ent_coef=0.01, policy_kwargs=network, device="cpu")
    model.learn(10**12, callback=Report(), log_interval=10**9)
    env.close()
