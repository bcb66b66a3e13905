"""Environments as pure functions of arrays, which device runs compile together with the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from gunreal.config.schema import ConfigError


class FunctionalEnv(Protocol):
    """Environments that step together, as two functions that JAX can compile.

    The state is a pytree of arrays with a leading axis of the number of environments N. An environment whose last step
    ended an episode ignores the next action. That step returns the first observation of the next episode, with reward 0
    and both flags False.

    Attributes:
      observation_space: space of one observation, `Box`, `Discrete`, or a `Dict` of an image and these.
      action_space: space of one action, `Discrete`. Actions are counted from 0, whatever its start is.
    """

    observation_space: spaces.Space
    action_space: spaces.Discrete

    def init(self, seeds: Any) -> tuple[Any, Any]:
        """Starts an episode in each environment.

        Args:
          seeds: int32 `[N]`. All random numbers of an environment depend on its seed only.

        Returns:
          The state, and the first observations `[N, ...]`.
        """

    def step(self, state: Any, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps all environments.

        Args:
          state: the state that `init` or `step` returned.
          actions: int32 `[N]`.

        Returns:
          The state, observations `[N, ...]`, rewards float32 `[N]`, and the flags terminated and truncated, bool `[N]`.
        """


class Batched:
    """A `FunctionalEnv` made from functions of a single environment, which it vectorizes and resets.

    Args:
      reset: `reset(key) -> (state, observation)`, for a key of `jax.random`.
      step: `step(key, state, action) -> (state, observation, reward, terminated, truncated)`.
      observation_space: space of one observation.
      action_space: space of one action.
    """

    def __init__(
        self,
        reset: Callable[..., Any],
        step: Callable[..., Any],
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
    ):
        self._reset, self._step = reset, step
        self.observation_space, self.action_space = observation_space, action_space

    def init(self, seeds: Any) -> tuple[Any, Any]:
        """See `FunctionalEnv`."""
        import jax

        keys = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(seeds)
        env, observation = jax.vmap(self._reset)(keys[:, 0])
        over = jax.numpy.zeros(len(seeds), bool)
        return {"env": env, "key": jax.random.key_data(keys[:, 1]), "over": over}, observation

    def step(self, state: Any, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """See `FunctionalEnv`."""
        import jax
        from jax import numpy as jnp

        def one(data: Any, env: Any, over: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            key, of_step, of_reset = jax.random.split(jax.random.wrap_key_data(data), 3)
            env, observation, reward, terminated, truncated = self._step(of_step, env, action)
            stepped, fresh = (env, observation), self._reset(of_reset)
            env, observation = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, stepped)
            terminated, truncated = (jnp.asarray(flag, bool) & ~over for flag in (terminated, truncated))
            following = {"env": env, "key": jax.random.key_data(key), "over": terminated | truncated}
            reward = jnp.where(over, 0.0, reward).astype("float32")
            return following, observation, reward, terminated, truncated

        return jax.vmap(one)(state["key"], state["env"], state["over"], actions)


def from_gymnax(env: Any, params: Any) -> Batched:
    """A `FunctionalEnv` made from an environment with gymnax's interface, as `gymnax.make` returns it.

    Time limits truncate episodes since gymnax 1.0, and terminate them before.

    Raises:
      ConfigError: its actions are not Discrete, or its observations are neither Discrete nor a Box.
    """
    from jax import numpy as jnp

    def reset(key: Any) -> tuple[Any, Any]:
        observation, state = env.reset_env(key, params)
        return state, observation

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        observation, state, reward, done, _ = env.step_env(key, state, action, params)
        done = jnp.asarray(done, bool)
        over = env.is_truncated(state, params) if hasattr(env, "is_truncated") else False  # since gymnax 1.0
        return state, observation, reward, done, jnp.asarray(over, bool) & ~done

    seen, actions = env.observation_space(params), env.action_space(params)
    if not hasattr(actions, "n"):
        raise ConfigError(
            f"{type(env).__name__} of gymnax takes {type(actions).__name__} actions; choose an environment with "
            "Discrete actions"
        )
    if hasattr(seen, "n"):
        space: spaces.Space = spaces.Discrete(int(seen.n))
    elif hasattr(seen, "low"):
        space = spaces.Box(-np.inf, np.inf, tuple(seen.shape), np.float32)
    else:
        raise ConfigError(
            f"{type(env).__name__} of gymnax observes {type(seen).__name__}; choose an environment that observes a Box "
            "or Discrete"
        )
    return Batched(reset, step, space, spaces.Discrete(int(actions.n)))


def adapted(made: Any) -> FunctionalEnv | None:
    """Converts what a user's function returned to a `FunctionalEnv`, or returns None if it is nothing of the kind."""
    if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "step_env"):
        return from_gymnax(*made)
    return made if hasattr(made, "init") and hasattr(made, "step") else None


class Played(gymnasium.Env):
    """A single environment of a `FunctionalEnv` with Gymnasium's interface, for evaluation and other runners."""

    def __init__(self, env: FunctionalEnv):
        import jax

        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._init, self._step = jax.jit(env.init), jax.jit(env.step)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        super().reset(seed=seed)
        self._state, observation = self._init(self.np_random.integers(2**31, size=1, dtype=np.int32))
        return self._seen(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        first = int(self.action_space.start)  # type: ignore[attr-defined]
        actions = np.asarray([int(action) - first], np.int32)
        self._state, observation, *rest = self._step(self._state, actions)
        reward, terminated, truncated = (value.item() for value in rest)
        return self._seen(observation), reward, terminated, truncated, {}

    def _seen(self, observation: Any) -> Any:
        if isinstance(self.observation_space, spaces.Dict):
            return {key: np.asarray(array[0]) for key, array in observation.items()}
        array = np.asarray(observation[0])
        return int(array) if isinstance(self.observation_space, spaces.Discrete) else array
