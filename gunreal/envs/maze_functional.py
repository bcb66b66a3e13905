"""The rare-goal maze as a functional environment, with the rules of `gunreal.envs.maze`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gunreal.envs.functional import Batched
from gunreal.envs.maze import AGENT, PIXELS, RareGoalMaze
from gunreal.envs.mazes import MOVES


def make(**options: Any) -> Batched:
    """The rare-goal maze for device runs. See `gunreal.envs.maze.RareGoalMaze` for the rules and the arguments."""
    maze = RareGoalMaze(**options)
    starts, goal, free = np.array(maze.starts), np.array(maze.goal), maze.distance >= 0

    def reset(key: Any) -> tuple[Any, Any]:
        import jax
        from jax import numpy as jnp

        place = jnp.asarray(starts, "int32")[jax.random.randint(key, (), 0, len(starts))]
        state = {"time": jnp.int32(0), "place": place}
        return state, draw(state)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        from jax import numpy as jnp

        ahead = state["place"] + jnp.asarray(MOVES, "int32")[action]
        place = jnp.where(jnp.asarray(free)[ahead[0], ahead[1]], ahead, state["place"])
        state = {"time": state["time"] + 1, "place": place}
        found = (place == goal).all()
        return state, draw(state), found.astype("float32"), found, (state["time"] >= maze.max_steps) & ~found

    def draw(state: Any) -> Any:
        from jax import numpy as jnp

        row, column = state["place"]
        cells = jnp.arange(PIXELS) // maze.cell
        here = (cells == row)[:, None] & (cells == column)[None, :]
        return jnp.where(here[..., None], AGENT, maze.picture).astype("uint8")

    return Batched(reset, step, maze.observation_space, maze.action_space)
