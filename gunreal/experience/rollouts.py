"""Rollouts: the steps of several agents that an objective learns from, in NumPy or JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED, Read
from gunreal.experience.returns import clip_rewards, generalized_advantages
from gunreal.experience.spec import Spec


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """B rollouts of T steps, which may cross the ends of episodes. Arrays are float32 `[B, T]` if not said otherwise.

    Attributes:
      action: actions, int32.
      mask: 1 for steps to learn from, 0 for steps that only reset an environment, and for those before the run.
      reward: clipped rewards, with the bonuses of tasks that have no discount of their own.
      discount: discount of each step, 0 if it terminated the episode.
      truncated: whether the step truncated the episode, bool.
      value: value of the state in which each step was taken, when it was taken.
      value_t: value of the state that each step led to. The last column is the bootstrap. Other columns are right where
        no episode ends, and where `truncated` is set.
      log_mu: log-probability of the action, when it was taken.
      bonus: None, or the same steps with the bonuses of tasks as reward, and with the discount and the value of these.
        The end of an episode does not end their returns (Burda et al. 2019, section 2.3).
    """

    action: Any
    mask: Any
    reward: Any
    discount: Any
    truncated: Any
    value: Any
    value_t: Any
    log_mu: Any
    bonus: Self | None = None
    _estimate: Callable[..., Any] = generalized_advantages

    def advantages(self, decay: float) -> Any:
        """Generalized advantage estimates with this lambda, `[B, T]`. Rollouts that continue each other are joined."""
        return self._estimate(self.reward, self.discount, self.truncated, self.value, self.value_t, decay)


def read_rollouts(
    spec: Spec,
    read: Read,
    steps: Any,
    after: Mapping[str, Any],
    estimate: Callable[..., Any] = generalized_advantages,
) -> Rollouts:
    """Reads rollouts.

    Args:
      steps: absolute numbers of the steps, int `[B, T]`, or `[1, T]` for the same steps of all agents. Those below 0
        have mask 0.
      after: the "value" of the state after each rollout, and its `spec.bonuses`, float32 `[B]` each.
      estimate: estimates advantages as `generalized_advantages` does.
    """
    flags = read("flags", steps)
    xp, reward = flags.__array_namespace__(), clip_rewards(read("reward", steps), spec.reward_clip)

    def of_states(name: str) -> tuple[Any, Any]:
        """The array of the states in which steps were taken, and of those that they led to."""
        array = read(name, steps)
        return array, xp.concat([array[:, 1:], after[name][:, None]], axis=1)

    if spec.bonuses == ("bonus",):
        reward = reward + of_states("bonus")[1]
    rollouts = Rollouts(
        read("action", steps),
        xp.astype((flags & RESET == 0) & (steps >= 0), xp.float32),
        reward,
        xp.where(flags & TERMINATED != 0, np.float32(0), np.float32(spec.discount)),
        flags & TRUNCATED != 0,
        *of_states("value"),
        read("log_mu", steps),
        _estimate=estimate,
    )
    if not spec.bonus_discount:
        return rollouts
    reward = of_states("bonus")[1]
    discount, truncated = xp.full_like(reward, spec.bonus_discount), xp.zeros_like(rollouts.truncated)
    value, value_t = of_states("bonus_value")
    own = {"reward": reward, "discount": discount, "truncated": truncated, "value": value, "value_t": value_t}
    return dataclasses.replace(rollouts, bonus=dataclasses.replace(rollouts, **own))
