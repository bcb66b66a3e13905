"""Returns and advantages in NumPy, for agent processes and the trainer, without a framework."""

from __future__ import annotations

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
) -> np.ndarray:
    """Generalized advantage estimates of rollouts that may cross episode ends (Schulman et al. 2016, eq. 16).

    Args:
      rewards, discounts, truncated, values_t: see `rollout_returns`.
      values: value of the state in which each step was taken, `[B, T]`.
      decay: lambda. 0 gives one-step errors, and 1 gives the returns minus the values.

    Returns:
      float32 `[B, T]`.
    """
    rewards, discounts, values, values_t = (np.asarray(x, np.float32) for x in (rewards, discounts, values, values_t))
    following = np.concatenate([values[:, 1:], values_t[:, -1:]], axis=1)
    errors = rewards + discounts * np.where(truncated, values_t, following) - values
    advantages = np.empty_like(errors)
    advantage = np.zeros_like(errors[:, 0])
    for t in reversed(range(errors.shape[1])):
        advantage = advantages[:, t] = errors[:, t] + discounts[:, t] * decay * np.where(truncated[:, t], 0, advantage)
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
