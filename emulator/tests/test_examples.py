"""The examples train for some hundred steps."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_jax():
    pytest.importorskip("jax", reason="JAX is not installed")
    rewards = runpy.run_path(str(EXAMPLES / "jax_a2c.py"))["main"](3)
    assert rewards.shape == (3,) and np.isfinite(rewards).all()


@pytest.mark.parametrize("env", ["gunreal_emulator:gunreal/Breakout-v5", "ale_py:ALE/Breakout-v5"])
def test_stable_baselines3(env):
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed; PyTorch is too large for CI")
    model = runpy.run_path(str(EXAMPLES / "sb3_ppo.py"))["main"](1024, env, seed=1)
    assert model.num_timesteps == 1024
