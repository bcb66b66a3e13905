"""A functional environment with a known course: `scripted_functional:make`."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces


class ScriptedFunctional:
    """The episodes of `scripted_env.Scripted`, all of the word that the seed chooses.

    Observation: float32 `[seed % 997, t, last action or -1]`. Episodes start and end as `FunctionalEnv` says.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, script: str = "---T"):
        words = script.split()
        self._lengths = np.array([0 if word[-1] == "~" else len(word) for word in words])
        self._truncates = np.array([word[-1] == "t" for word in words])

    def init(self, seeds):
        from jax import numpy as jnp

        state = {"seed": seeds, "t": jnp.zeros_like(seeds), "over": jnp.zeros(len(seeds), bool)}
        return state, self._observe(state, -1)

    def step(self, state, actions):
        from jax import numpy as jnp

        word = state["seed"] % len(self._lengths)
        length, cut = jnp.asarray(self._lengths)[word], jnp.asarray(self._truncates)[word]
        t, over = state["t"], state["over"]
        gained = jnp.where(over, 0.0, 0.25 * (t - 2) + 0.5 * actions)
        ends = ~over & (length > 0) & (t + 1 == length)
        state = {"seed": state["seed"], "t": jnp.where(over, 0, t + 1), "over": ends}
        observation = self._observe(state, jnp.where(over, -1, actions))
        return state, observation, gained.astype("float32"), ends & ~cut, ends & cut

    def _observe(self, state, action):
        from jax import numpy as jnp

        parts = jnp.broadcast_arrays(state["seed"] % 997, state["t"], action)
        return jnp.stack(parts, 1).astype("float32")


def make(script: str = "---T"):
    """What `--env scripted_functional:make` calls."""
    return ScriptedFunctional(script)
