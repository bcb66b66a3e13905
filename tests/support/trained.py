"""A small trained run and an environment with known scores, for the tests of what is done with runs."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

import gunreal


def short_run(folder: Path, name: str, steps: int, **options: Any) -> gunreal.Run:
    """A serial run of a small network on Catch."""
    config = gunreal.Config(
        env="gunreal/Catch-v0",
        runner="serial",
        agents=4,
        steps=steps,
        min_batch=40,
        hidden=32,
        logdir=str(folder),
        name=name,
        **options,
    )
    return gunreal.train(config, show=False)


@functools.cache
def catch_run(folder: Path) -> Path:
    """The folder of a run on Catch with pixel control, trained for 400 steps; made once."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    return short_run(folder, "catch", steps=400, tasks=("pc",), backend=backend).path


class Tens(gymnasium.Env):
    """An episode of `1 + seed % 7` steps; a step's reward is 10 plus the action. Observes `[seed % 100, steps]`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    seeds: ClassVar[list[int]] = []  # of all the resets
    still_open = 0

    def __init__(self) -> None:
        Tens.still_open += 1

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        assert seed is not None
        Tens.seeds.append(seed)
        self.seed, self.steps = seed, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observe(), 10.0 + action, self.steps == 1 + self.seed % 7, False, {}

    def close(self) -> None:
        Tens.still_open -= 1

    def _observe(self) -> np.ndarray:
        return np.array([self.seed % 100, self.steps], np.float32)


gymnasium.register("Tens-v0", Tens)
