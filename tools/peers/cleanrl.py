"""Drivers for CleanRL's PPO and PQN, which they import when they are called."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from typing import Any

from peers.curve import Curve


class _Done(Exception):
    """The run has reached its end."""


def learn_ppo(curve: Curve, game: str, seed: int, *, envs: int = 8) -> None:
    """Trains PPO with EnvPool by running `cleanrl/ppo_atari_envpool.py` with its own settings.

    Args:
      curve: receives the learning curve.
      game: name of the game, as in `ALE/NAME-v5`.
      seed: random seed.
      envs: number of environments.
    """
    _run("ppo_atari_envpool", curve, game, seed, envs)


def learn_pqn(curve: Curve, game: str, seed: int, *, envs: int = 8) -> None:
    """Trains PQN by running `cleanrl/pqn_atari_envpool.py` with its own settings. The arguments are those of PPO."""
    _run("pqn_atari_envpool", curve, game, seed, envs)


def _run(script: str, curve: Curve, game: str, seed: int, envs: int) -> None:
    """The scripts have no callbacks. They report to TensorBoard only, so this function replaces its writer."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the CPU, as for the other systems
    from torch.utils import tensorboard

    class Writer:
        def __init__(self, log_dir: str):
            pass

        def add_text(self, tag: str, text: str) -> None:
            curve.start()  # just before environments and network are made

        def add_scalar(self, tag: str, value: Any, step: int) -> None:
            if tag == "charts/episodic_return":
                curve.episode(float(value))
            if tag in ("charts/episodic_return", "charts/SPS") and not curve.report(step):
                raise _Done

        def close(self) -> None:
            pass

    tensorboard.SummaryWriter = Writer
    steps = curve.steps + envs * 128  # the scripts leave out a last batch that is not whole
    flags = {"env-id": f"{game}-v5", "seed": seed, "num-envs": envs, "total-timesteps": steps}
    sys.argv[1:] = [f"--{name}={value}" for name, value in flags.items()]
    with contextlib.suppress(_Done):
        runpy.run_module(f"cleanrl.{script}", run_name="__main__")
