"""Returns and advantages in NumPy, for agent processes and the trainer, without a framework."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def clip_rewards(rewards: np.ndarray, clip: float) -> np.ndarray:
    """Clips rewards of any shape to `[-clip, clip]`, as float32. 0 disables clipping."""
    rewards = np.asarray(rewards, np.float32)
    return np.clip(rewards, -clip, clip) if clip > 0 else rewards


def n_step_returns(rewards: np.ndarray, discounts: np.ndarray, bootstrap: np.ndarray | float) -> np.ndarray:
    """n-step returns, `R_t = r_t + discount_t R_{t+1}` (UNREAL, section 2).

    Args:
      rewards: reward of each step, `[T, ...]`.
      discounts: discount of each step, `[T]` or the shape of `rewards`. 0 if the step terminated the episode.
      bootstrap: value of the state that the last step led to, `[...]`.

    Returns:
      float32, with the shape of `rewards`.
    """
    rewards = np.asarray(rewards, np.float32)
    discounts = np.asarray(discounts, np.float32)
    discounts = discounts.reshape(discounts.shape + (1,) * (rewards.ndim - discounts.ndim))
    returns = np.empty_like(rewards)
    return_t = np.asarray(bootstrap, np.float32)
    for t in reversed(range(len(rewards))):
        return_t = returns[t] = rewards[t] + discounts[t] * return_t
    return returns


def generalized_advantages(
    rewards: np.ndarray,
    discounts: np.ndarray,
    truncated: np.ndarray,
    values: np.ndarray,
    values_t: np.ndarray,
    decay: float,
    after: np.ndarray | None = None,
) -> np.ndarray:
    """Generalized advantage estimates of rollouts that may cross episode ends (Schulman et al. 2016, eq. 16).

    Args:
      rewards, discounts, truncated: see `rollout_returns`.
      values: value of the state in which each step was taken, `[B, T]`.
      values_t: value of the state that each step led to, `[B, T]`.
      decay: lambda. 0 gives one-step errors, and 1 gives the returns minus the values.
      after: advantage of the step after the rollout, `[B]`, or None if the estimates end with the rollout.

    Returns:
      float32 `[B, T]`.
    """
    rewards, discounts, values, values_t = (np.asarray(x, np.float32) for x in (rewards, discounts, values, values_t))
    errors = rewards + discounts * values_t - values
    advantages = np.empty_like(errors)
    advantage = np.zeros_like(errors[:, 0]) if after is None else after
    for t in reversed(range(errors.shape[1])):
        advantage = advantages[:, t] = errors[:, t] + discounts[:, t] * decay * np.where(truncated[:, t], 0, advantage)
    return advantages


def joined_advantages(agents: np.ndarray, firsts: np.ndarray, decay: float, parts: Sequence[np.ndarray]) -> np.ndarray:
    """`generalized_advantages` of rollouts that may continue each other, as if these were one longer rollout.

    Args:
      agents: the agent of each rollout, int `[B]`.
      firsts: number of its first step, int `[B]`.
      decay: lambda.
      parts: rewards, discounts, truncated, values and values_t, see `generalized_advantages`.

    Returns:
      float32 `[B, T]`.
    """
    length = parts[0].shape[1]
    rollouts = list(zip(agents.tolist(), firsts.tolist(), strict=True))  # may be repeated, as in a warm-up
    place = {rollout: k for k, rollout in enumerate(rollouts)}
    next_of = np.array([place.get((agent, first + length), -1) for agent, first in rollouts])
    rewards, discounts, truncated, values, values_t = parts
    advantages, after = np.empty(rewards.shape, np.float32), np.zeros(len(agents), np.float32)
    now = np.flatnonzero(next_of < 0)
    while len(now):
        advantages[now] = generalized_advantages(
            rewards[now], discounts[now], truncated[now], values[now], values_t[now], decay, after[now]
        )
        now = np.flatnonzero(np.isin(next_of, now))
        after[now] = advantages[next_of[now], 0]
    return advantages


def rollout_returns(
    rewards: np.ndarray, discounts: np.ndarray, truncated: np.ndarray, values_t: np.ndarray
) -> np.ndarray:
    """n-step returns of rollouts that may cross episode ends.

    Another episode follows a truncated step, so the recursion restarts there from the value of the final observation.

    Args:
      rewards: `[B, T]`.
      discounts: `[B, T]`, 0 if the step terminated the episode.
      truncated: bool `[B, T]`.
      values_t: value of the state that each step led to, `[B, T]`. The last column is the bootstrap. The other columns
        are used only where `truncated` is set.

    Returns:
      float32 `[B, T]`.
    """
    rewards, discounts, values_t = (np.asarray(x, np.float32) for x in (rewards, discounts, values_t))
    returns = np.empty_like(rewards)
    return_t = values_t[:, -1]
    for t in reversed(range(rewards.shape[1])):
        after = np.where(truncated[:, t], values_t[:, t], return_t)
        return_t = returns[:, t] = rewards[:, t] + discounts[:, t] * after
    return returns
