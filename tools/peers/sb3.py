"""Drivers for Stable-Baselines3 2.x, which they import when they are called."""

from __future__ import annotations

import os
from typing import Any

from peers.curve import Curve
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


def learn_a2c(curve: Curve, game: str, seed: int, *, envs: int = 16, processes: bool = True) -> None:
    """Trains A2C with the Atari settings of rl-baselines3-zoo (hyperparams/a2c.yml).

    Args:
      curve: receives the learning curve.
      game: name of the game, as in `ALE/NAME-v5`.
      seed: random seed.
      envs: number of environments.
      processes: whether to use SubprocVecEnv, which is faster than the zoo's DummyVecEnv.
    """
    _rest_when_idle()
    from stable_baselines3 import A2C
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    policy = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
    _learn(A2C, curve, game, seed, envs, processes, ent_coef=0.01, vf_coef=0.25, policy_kwargs=policy)


def learn_ppo(curve: Curve, game: str, seed: int, *, envs: int = 8, processes: bool = True) -> None:
    """Trains PPO with the Atari settings of rl-baselines3-zoo (hyperparams/ppo.yml).

    The learning rate and the clip range fall linearly to 0. The arguments are those of `learn_a2c`.
    """
    _rest_when_idle()
    from stable_baselines3 import PPO

    _learn(
        PPO,
        curve,
        game,
        seed,
        envs,
        processes,
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda left: 2.5e-4 * left,
        clip_range=lambda left: 0.1 * left,
        vf_coef=0.5,
        ent_coef=0.01,
    )


def _rest_when_idle() -> None:
    """Makes idle threads of PyTorch sleep instead of spin, which leaves more CPU time for environments."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _learn(algorithm: Any, curve: Curve, game: str, seed: int, envs: int, processes: bool, **settings: Any) -> None:
    """Trains with Stable-Baselines3's Atari wrappers. Episodes end with a life, but scores are those of whole games."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage

    class Report(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    curve.episode(info["episode"]["r"])
            return curve.report(self.num_timesteps)

    games = make_atari_env(
        f"ale_py:{game}NoFrameskip-v4",
        envs,
        seed=seed,
        vec_env_cls=SubprocVecEnv if processes else DummyVecEnv,
        vec_env_kwargs={"start_method": "fork"} if processes else {},
    )
    env = VecTransposeImage(VecFrameStack(games, 4))
    model = algorithm("CnnPolicy", env, seed=seed, device="cpu", **settings)
    curve.start()
    model.learn(curve.steps, callback=Report(), log_interval=10**9)
    env.close()
