"""Catch as a functional environment, with the rules of `gunreal.envs.catch`."""

from __future__ import annotations

from typing import Any

from gunreal.envs.catch import PIXELS, Catch
from gunreal.envs.functional import Batched


def make(rows: int = 10, columns: int = 5, delay: int = 0) -> Batched:
    """Catch for device runs. See `gunreal.envs.catch.Catch` for the rules and the arguments."""
    game = Catch(rows, columns, delay)  # checks the arguments
    height, width = PIXELS // rows, PIXELS // columns

    def reset(key: Any) -> tuple[Any, Any]:
        import jax
        from jax import numpy as jnp

        ball = jax.random.randint(key, (), 0, columns)
        state = {"time": jnp.int32(0), "ball": ball, "paddle": jnp.int32(columns // 2)}
        return state, draw(state)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        from jax import numpy as jnp

        time = state["time"] + 1
        moved = jnp.clip(state["paddle"] + action - 1, 0, columns - 1)
        paddle = jnp.where(time > delay, moved, state["paddle"]).astype("int32")
        state = {"time": time, "ball": state["ball"], "paddle": paddle}
        landed = time == delay + rows - 1
        reward = jnp.where(landed, jnp.where(state["ball"] == paddle, 1.0, -1.0), 0.0)
        return state, draw(state), reward, landed, jnp.zeros((), bool)

    def draw(state: Any) -> Any:
        from jax import numpy as jnp

        def cell(row: Any, column: Any) -> Any:
            return (down // height == row)[:, None] & (down // width == column)[None, :]

        down = jnp.arange(PIXELS)
        lit = cell(rows - 1, state["paddle"])
        seen = (state["time"] == 0) | (delay == 0)
        lit = lit | (cell(state["time"], state["ball"]) & seen)
        return jnp.where(lit, 255, 0).astype("uint8")[..., None]

    return Batched(reset, step, game.observation_space, game.action_space)
