"""Games with one text of their rules, for Gymnasium's interface and for device runs in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.functional import Batched

PIXELS = 84


class Game(gymnasium.Env):
    """A game whose state is a tuple of whole numbers, and whose observations are gray images, uint8 `[84, 84, 1]`.

    A subclass gives the rules: `start`, `advance` and `draw`. They change nothing. They only look up tables and use
    operators, so that they work on Python's numbers and on JAX's arrays.

    Attributes:
      tables: what the rules look up, by name: arrays, and lists where the rules take a single number, because that is
        several times faster than from an array. "starts" has what `start` gets, with equal chances.
      actions: names of the actions.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
    action_space: gymnasium.spaces.Discrete
    actions: tuple[str, ...]

    def __init__(self, tables: dict[str, Any], render_mode: str | None):
        self.tables, self.render_mode = tables, render_mode
        self.state = self.start(tables["starts"][0])

    def start(self, place: Any) -> tuple[Any, ...]:
        """The first state of an episode. `place` is one of the "starts"."""
        raise NotImplementedError

    def advance(self, tables: Mapping[str, Any], state: Any, action: Any) -> tuple[tuple[Any, ...], Any, Any, Any]:
        """The state after an action, the reward, and the flags terminated and truncated."""
        raise NotImplementedError

    def draw(self, tables: Mapping[str, Any], state: Any) -> Any:
        """The observation of a state."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        super().reset(seed=seed)
        starts = self.tables["starts"]
        self.state = self.start(starts[int(self.np_random.integers(len(starts)))])
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        self.state, reward, terminated, truncated = self.advance(self.tables, self.state, int(action))
        return self._seen(), float(reward), bool(terminated), bool(truncated), {}

    def get_action_meanings(self) -> list[str]:
        """The names of the actions."""
        return list(self.actions)

    def render(self) -> np.ndarray | None:
        """The observation in RGB, uint8 `[84, 84, 3]`, for "rgb_array"."""
        return self._seen().repeat(3, axis=2) if self.render_mode == "rgb_array" else None

    def _seen(self) -> np.ndarray:
        return self.draw(self.tables, self.state).copy()  # it may be a part of a table

    def functional(self) -> Batched:
        """The game for device runs."""
        import jax
        from jax import numpy as jnp

        def tables() -> dict[str, Any]:
            return {name: jnp.asarray(table) for name, table in self.tables.items()}

        def seen(state: tuple[Any, ...]) -> tuple[Any, Any]:
            state = tuple(jnp.asarray(number, "int32") for number in state)
            return state, self.draw(tables(), state)

        def reset(key: Any) -> tuple[Any, Any]:
            starts = tables()["starts"]
            return seen(self.start(starts[jax.random.randint(key, (), 0, len(starts))]))

        def step(key: Any, state: Any, action: Any) -> tuple[Any, ...]:
            state, *results = self.advance(tables(), state, action)
            return *seen(state), *results

        return Batched(reset, step, self.observation_space, self.action_space)
