"""What the actor-critic learns from rollouts, in NumPy or JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gunreal.config.schema import Config
from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED, Read
from gunreal.experience.returns import clip_rewards, generalized_advantages, rollout_returns
from gunreal.experience.spec import Spec


def inputs(
    config: Config,
    spec: Spec,
    read: Read,
    steps: Any,
    after: Any,
    advantages: Callable[..., Any] = generalized_advantages,
) -> dict[str, Any]:
    """The actor-critic's part of a batch of rollouts.

    Args:
      config: configuration of the run.
      spec: shapes and constants.
      read: access to the rows of B agents.
      steps: absolute numbers of the steps, int `[B, T]`, or `[1, T]` for the same steps of all agents. Those below 0
        have mask 0.
      after: value of the state after each rollout, float32 `[B]`.
      advantages: estimates advantages as `generalized_advantages` does.

    Returns:
      Arrays `[B, T]`: "action" int32, "mask" float32, and the float32 inputs of the objective, which are n-step
      returns, the arguments of V-trace, or PPO's advantages and returns.
    """
    flags, value = read("flags", steps), read("value", steps)
    xp = flags.__array_namespace__()
    value_t = xp.concat([value[:, 1:], after[:, None]], axis=1)
    reward = clip_rewards(read("reward", steps), spec.reward_clip)
    discount = xp.where(flags & TERMINATED != 0, np.float32(0), np.float32(spec.discount))
    truncated = flags & TRUNCATED != 0
    mask = xp.astype((flags & RESET == 0) & (steps >= 0), xp.float32)
    part = {"action": read("action", steps), "mask": mask}
    if config.algorithm == "ppo":
        advantage = advantages(reward, discount, truncated, value, value_t, config.gae_lambda)
        return part | {"advantage": advantage, "returns": advantage + value, "log_mu": read("log_mu", steps)}
    if config.correction == "vtrace":
        part |= {"reward": reward, "discount": discount, "value_t": value_t, "log_mu": read("log_mu", steps)}
        return part | {"truncated": xp.astype(truncated, xp.float32)}
    return part | {"returns": rollout_returns(reward, discount, truncated, value_t)}
