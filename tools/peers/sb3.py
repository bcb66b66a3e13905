"""Trains Stable-Baselines3 2.x, which is imported when a driver is called."""

from __future__ import annotations

import os
from typing import Any

from peers.curve import Curve
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
        vec_env_kwargs={"start_method": "fork"} if processes else {},  # by forkserver each process imports PyTorch: 3 s
    )
    env = VecFrameStack(VecTransposeImage(games), 4, channels_order="first")
    network = {"features_extractor_class": Torso, "net_arch": []}
    model = A2C("CnnPolicy", env, n_steps=n_steps, ent_coef=0.01, policy_kwargs=network, device="cpu")
    model.learn(10**12, callback=Report(), log_interval=10**9)
    env.close()


def learn_a2c(curve: Curve, game: str, seed: int, *, envs: int = 16, processes: bool = True) -> None:
    """A2C with rl-baselines3-zoo's Atari settings (hyperparams/a2c.yml); what it leaves open is the library's default.

    Args:
      curve: written as it learns.
      game: a game's name as in `ALE/NAME-v5`.
      seed: of everything.
      envs: environments.
      processes: SubprocVecEnv, which is faster here, else the zoo's DummyVecEnv.
    """
    _rest_when_idle()
    from stable_baselines3 import A2C
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    policy = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
    _learn(A2C, curve, game, seed, envs, processes, ent_coef=0.01, vf_coef=0.25, policy_kwargs=policy)


def learn_ppo(curve: Curve, game: str, seed: int, *, envs: int = 8, processes: bool = True) -> None:
    """PPO with rl-baselines3-zoo's Atari settings (hyperparams/ppo.yml). Rate and clip fall linearly to 0.

    Args: see `learn_a2c`.
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
    """Has PyTorch's threads, once it is imported, sleep where they would spin: that takes cores from environments."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _learn(algorithm: Any, curve: Curve, game: str, seed: int, envs: int, processes: bool, **settings: Any) -> None:
    """Trains on Stable-Baselines3's Atari wrappers: episodes end with a life, but whole games are scored (Monitor)."""
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
