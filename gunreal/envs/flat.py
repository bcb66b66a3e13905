"""Environments whose observations or actions have several parts, as vectors and as numbered actions."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from gunreal.config.schema import Config, ConfigError, is_auto
from gunreal.envs.raw import NUMBERS, check_values, is_image, looks_like_images

_MOST_ACTIONS = 1000


class NumberedActions(gymnasium.ActionWrapper):
    """Numbers the `count` combinations of the parts of an action from 0, in the order of `numpy.ndindex`."""

    def __init__(self, env: gymnasium.Env, parts: spaces.MultiDiscrete, count: int):
        super().__init__(env)
        self._parts = parts
        self.action_space = spaces.Discrete(count)

    def action(self, action: Any) -> np.ndarray:
        """The parts of an action by its number."""
        parts = np.unravel_index(action, self._parts.nvec.ravel())
        return (self._parts.start + np.reshape(parts, self._parts.shape)).astype(self._parts.dtype)


def flat(config: Config, env: gymnasium.Env) -> gymnasium.Env:
    """Wraps the environment if its observations are several vectors, or if its actions have several parts.

    Several vectors become one, as with `gymnasium.wrappers.FlattenObservation`. Combinations of actions are numbered.

    Raises:
      ConfigError: there are too many combinations of actions.
    """
    actions = getattr(env, "action_space", None)
    if isinstance(actions, spaces.MultiBinary):
        actions = spaces.MultiDiscrete(np.full(actions.shape, 2), dtype=np.int8)
    if isinstance(actions, spaces.MultiDiscrete):
        if (count := math.prod(map(int, actions.nvec.flat))) > _MOST_ACTIONS:  # NumPy's integers would overflow
            raise ConfigError(
                f"{config.env} has {count:,} combinations of actions; wrap it so that its action_space has at most "
                f"{_MOST_ACTIONS:,}"
            )
        env = NumberedActions(env, actions, count)
    seen = getattr(env, "observation_space", None)
    composite = isinstance(seen, spaces.Dict | spaces.Tuple)
    return _Flattened(env, config.env) if composite and is_auto(config, "image_key") and _are_vectors(seen) else env


class _Flattened(FlattenObservation):
    """`FlattenObservation` with errors that name the part of an observation."""

    def __init__(self, env: gymnasium.Env, name: str):
        super().__init__(env)
        self._name = name

    def observation(self, observation: Any) -> Any:
        """The observation as a vector."""
        check_values(self._name, self.env.observation_space, observation)
        return super().observation(observation)


def _are_vectors(space: Any) -> bool:
    """Whether all parts of a space are numbers, none of which is a picture."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return all(map(_are_vectors, parts))
    return isinstance(space, NUMBERS) and not is_image(space) and not looks_like_images(space)
