"""Random play of environments on a device, as a compiled program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax


def random_play(
    step: Callable[..., Any], actions: int, agents: int, steps: int
) -> Callable[[tuple[Any, Any]], tuple[Any, Any]]:
    """Returns a compiled program in which environments take random actions.

    Args:
      step: `FunctionalEnv.step`, or that of an object with the same results.
      actions: number of actions.
      agents: number of environments.
      steps: steps of each environment in a call.

    Returns:
      A function from the state of the environments and a random key to the pair after the steps, and to the number of
      episodes that ended. It overwrites its argument.
    """

    @functools.partial(jax.jit, donate_argnums=0)
    def play(state: tuple[Any, Any]) -> tuple[Any, Any]:
        def once(carry: tuple[Any, Any], _: None) -> tuple[Any, Any]:
            state, key = carry
            now, of_actions = jax.random.split(key)
            drawn = jax.random.randint(of_actions, (agents,), 0, actions, "int32")
            state, frames, _, terminated, truncated = step(state, drawn)
            return (state, now), ((terminated | truncated).sum(), frames[0].sum())  # or no frames would be drawn

        state, (ends, _) = jax.lax.scan(once, state, None, length=steps)
        return state, ends.sum()

    return play
