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


def test_stable_baselines3():
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed; PyTorch is too large for CI")
    model = runpy.run_path(str(EXAMPLES / "sb3_ppo.py"))["main"](512)
    assert model.num_timesteps == 512
