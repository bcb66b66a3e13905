"""Acting on the device: a loop over predict, sample and step, compiled as one program."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from gunreal.config.schema import Config
from gunreal.device.environment import Frames
from gunreal.envs.functional import FunctionalEnv
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Past
from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Spec
from gunreal.learning.objective import Objective
from gunreal.learning.task import acting_head


class Actors(NamedTuple):
    """The state of all agents between two steps.

    Attributes:
      stack: current observations `[N, *spec.acting.observation]`.
      age: steps since the start of the episode, int32 `[N]`.
      ended: whether the current observation is the last one of its episode, bool `[N]`.
      score: sum of the episode's rewards so far, float32 `[N]`.
      recorded: what tasks record of the current observations, by name.
      past: recurrent state `[N, spec.state]`, last action and last reward `[N]`, vector `[N, spec.vectors]`, or None.
      key: data of the random key for actions.
    """

    env: Any
    stack: Any
    age: Any
    ended: Any
    score: Any
    recorded: dict[str, Any]
    past: Past | None
    key: Any


class Acting:
    """The agents of a run as pure functions.

    Args:
      predict: `JaxLearner.functional_predict`, from whose `head` agents act.
      step: `env.step`, divided among devices.
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        env: FunctionalEnv,
        frames: Frames,
        objective: Objective,
        predict: Any,
        step: Any,
    ):
        self._config, self._spec, self._frames, self._objective = config, spec.acting, frames, objective
        self._init, self._predict, self._stepped = env.init, predict, step

    def start(self) -> Actors:
        """Starts an episode for each agent, and takes up to `device_spread` random actions in it."""
        count, spec = self._config.agents, self._spec
        of_envs, of_spread, key = jax.random.split(jax.random.key(self._config.seed), 3)
        seeds = jax.random.randint(of_envs, (count,), 0, 2**31 - 1)
        env, observation = self._init(seeds)
        zero = jnp.zeros(count, "float32")
        begun = env, self._frames(observation), jnp.zeros(count, bool), zero
        env, seen, ended, score = self._spread(begun, of_spread) if self._config.device_spread else begun
        past = None
        if spec.needs_past:
            past = Past(jnp.zeros((count, spec.state)), jnp.full(count, -1, "int32"), zero, seen.vector)
        age = jnp.zeros(count, "int32")
        stack, data = _repeated(seen.frame, spec), jax.random.key_data(key)
        return Actors(env, stack, age, ended, score, seen.recorded, past, data)

    def _spread(self, begun: tuple[Any, ...], key: Any) -> tuple[Any, ...]:
        """Steps each environment a random number of times."""
        count = self._config.agents
        of_limits, key = jax.random.split(key)
        limits = jax.random.randint(of_limits, (count,), 0, self._config.device_spread + 1)

        def step(carry: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], None]:
            env, _, ended, score = carry
            actions = jax.random.randint(
                jax.random.fold_in(key, number), (count,), 0, self._spec.num_actions, dtype="int32"
            )
            stepped, observation, reward, terminated, truncated = self._env_step(env, actions)
            score = jnp.where(ended, 0.0, score + reward)
            new = stepped, self._frames(observation), terminated | truncated, score

            def chosen(x: Any, y: Any) -> Any:
                return jnp.where(_column(number < limits, x), x, y)

            return jax.tree.map(chosen, new, carry), None

        return jax.lax.scan(step, begun, jnp.arange(self._config.device_spread))[0]

    def _env_step(self, env: Any, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """A step of the environments, which may return rewards and flags as whole numbers."""
        env, observation, reward, terminated, truncated = self._stepped(env, actions)
        return env, observation, reward.astype("float32"), terminated.astype(bool), truncated.astype(bool)

    def play(
        self, weights: Any, actors: Actors, steps: int, exploration: Any = 0.0
    ) -> tuple[Actors, dict[str, Any], Any]:
        """Takes steps with the current policy, and random actions with probability `exploration`.

        Returns:
          The agents after it, the steps for `store.append`, and the scores of the episodes that ended in each step,
          float32 `[steps, N]`, NaN elsewhere. It is infinite where a reward of the episode was not a finite number.
        """

        def step(actors: Actors, _: None) -> tuple[Actors, tuple[dict[str, Any], Any]]:
            return self._step(weights, actors, exploration)

        actors, (block, scores) = jax.lax.scan(step, actors, None, length=steps)
        return actors, block, scores

    def _step(self, weights: Any, actors: Actors, exploration: Any) -> tuple[Actors, tuple[dict[str, Any], Any]]:
        spec = self._spec
        now, of_actions = jax.random.split(jax.random.wrap_key_data(actors.key))
        logits, value, *more = self._predict(weights, actors.stack, with_time_axis(actors.past), acting_head(spec))
        logits, value = self._objective.acting(logits, value, exploration)
        action = jax.random.categorical(of_actions, logits).astype("int32")
        log_mu = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        env, observation, reward, terminated, truncated = self._env_step(actors.env, action)
        truncated = truncated & ~terminated
        seen, ended = self._frames(observation), terminated | truncated
        flags = FIRST * (actors.age == 0) + RESET * actors.ended + TERMINATED * terminated + TRUNCATED * truncated
        row = {
            "frame": actors.stack[:, -spec.frame[0] :],
            "age": actors.age,
            "action": action,
            "reward": reward,
            "flags": flags.astype("uint8"),
            "log_mu": log_mu,
            "value": value,
        }
        row |= actors.recorded | {name: more.pop(0) for name in spec.bonuses}
        past = None
        if actors.past:
            row |= {"state": actors.past.state} if spec.state else {}
            row |= {"vector": actors.past.vector} if spec.vectors else {}
            state = more[0] if spec.state else actors.past.state
            last_reward = jnp.where(actors.ended, 0.0, clip_rewards(reward, spec.reward_clip))
            past = Past(state, jnp.where(actors.ended, -1, action), last_reward, seen.vector)
        newest = _column(actors.ended, seen.frame)
        moved = jnp.concatenate([actors.stack[:, spec.frame[0] :], seen.frame], axis=1)
        stack = jnp.where(newest, _repeated(seen.frame, spec), moved)
        age = jnp.where(actors.ended, 0, actors.age + 1)
        score = jnp.where(actors.ended, 0.0, actors.score + reward)
        following = Actors(env, stack, age, ended, score, seen.recorded, past, jax.random.key_data(now))
        finite = jnp.isfinite(reward) & jnp.isfinite(score)
        return following, (row, jnp.where(finite, jnp.where(ended, score, jnp.nan), jnp.inf))


def with_time_axis(past: Past | None) -> Past | None:
    """The past of single steps `[N]` as that of sequences of one step `[N, 1]`."""
    return past and Past(past.state, *(x[:, None] for x in past[1:]))


def _repeated(frame: Any, spec: Spec) -> Any:
    """The first observation of an episode."""
    return jnp.concatenate([frame] * spec.stack, axis=1)


def _column(x: Any, like: Any) -> Any:
    return x.reshape(-1, *[1] * (like.ndim - 1))
