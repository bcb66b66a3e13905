"""Recall: the smallest thing to learn from images. A light on the left or on the right says which action will pay."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.functional import Batched

PIXELS = 20


def make(wait: int = 2, shown: int = 100) -> Batched:
    """Episodes of `wait + 1` steps, the last of which pays 1 for the action of the light's side and -1 otherwise.

    The light is in the first `shown` frames. If the last frame lacks it, an agent without memory is at chance, 0.
    """

    def reset(key: Any) -> tuple[Any, Any]:
        import jax
        from jax import numpy as jnp

        state = {"time": jnp.int32(0), "side": jax.random.randint(key, (), 0, 2)}
        return state, draw(state)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        from jax import numpy as jnp

        last = state["time"] == wait
        reward = jnp.where(last, jnp.where(action == state["side"], 1.0, -1.0), 0.0)
        state = {**state, "time": state["time"] + 1}
        return state, draw(state), reward, last, jnp.zeros((), bool)

    def draw(state: Any) -> Any:
        from jax import numpy as jnp

        lit = (jnp.arange(PIXELS) * 2 // PIXELS == state["side"]) & (state["time"] < shown)
        return jnp.broadcast_to(jnp.where(lit, 255, 0).astype("uint8")[None, :, None], (PIXELS, PIXELS, 1))

    space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
    return Batched(reset, step, space, gymnasium.spaces.Discrete(2))
