"""Returns and advantages, in NumPy or JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def clip_rewards(rewards: Any, clip: float) -> Any:
    """Clips rewards of any shape to `[-clip, clip]`. 0 disables clipping."""
    return rewards.__array_namespace__().clip(rewards, -clip, clip) if clip > 0 else rewards


def n_step_returns(rewards: Any, discounts: Any, bootstrap: Any, length: Any) -> Any:
    """n-step returns of sequences, `R_t = r_t + discount_t R_{t+1}` (UNREAL, section 2).

    Args:
      rewards: reward of each step, float32 `[N, T, ...]`.
      discounts: discount of each step, float32 `[N, T]` or the shape of `rewards`. 0 if the step terminated the
        episode.
      bootstrap: value of the state after each sequence, float32 `[N, ...]`.
      length: number of steps of each sequence, int `[N]`.

    Returns:
      float32, with the shape of `rewards`. It is 0 from `length` on.
    """
    xp = rewards.__array_namespace__()
    steps = xp.arange(rewards.shape[1])
    ones = (1,) * (rewards.ndim - 2)
    discounts = discounts.reshape(*discounts.shape, *(1,) * (rewards.ndim - discounts.ndim))
    inside = (steps < length[:, None]).reshape(*rewards.shape[:2], *ones)
    last = (steps + 1 == length[:, None]).reshape(*rewards.shape[:2], *ones)

    def step(after: Any, now: Sequence[Any]) -> Any:
        reward, discount, ends, counts = now
        return xp.where(counts, reward + discount * xp.where(ends, bootstrap, after), 0)

    return _backward(step, xp.zeros_like(bootstrap), (rewards, discounts, last, inside))


def generalized_advantages(
    rewards: Any,
    discounts: Any,
    truncated: Any,
    values: Any,
    values_t: Any,
    decay: float,
    after: Any = None,
) -> Any:
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
    xp = rewards.__array_namespace__()
    errors = rewards + discounts * values_t - values
    after = xp.zeros_like(errors[:, 0]) if after is None else after
    traces = xp.where(truncated, np.float32(0), discounts * np.float32(decay))
    return _backward(lambda after, now: now[0] + now[1] * after, after, (errors, traces))


def joined_advantages(
    agents: np.ndarray,
    firsts: np.ndarray,
    rewards: np.ndarray,
    discounts: np.ndarray,
    truncated: np.ndarray,
    values: np.ndarray,
    values_t: np.ndarray,
    decay: float,
) -> np.ndarray:
    """`generalized_advantages` of rollouts that may continue each other, as if these were one longer rollout.

    Args:
      agents: the agent of each rollout, int `[B]`.
      firsts: number of its first step, int `[B]`.
      rewards, discounts, truncated, values, values_t, decay: see `generalized_advantages`.

    Returns:
      float32 `[B, T]`.
    """
    length = rewards.shape[1]
    rollouts = list(zip(agents.tolist(), firsts.tolist(), strict=True))  # may be repeated, as in a warm-up
    place = {rollout: k for k, rollout in enumerate(rollouts)}
    next_of = np.array([place.get((agent, first + length), -1) for agent, first in rollouts])
    advantages, after = np.empty(rewards.shape, np.float32), np.zeros(len(agents), np.float32)
    now = np.flatnonzero(next_of < 0)
    while len(now):
        advantages[now] = generalized_advantages(
            rewards[now], discounts[now], truncated[now], values[now], values_t[now], decay, after[now]
        )
        now = np.flatnonzero(np.isin(next_of, now))
        after[now] = advantages[next_of[now], 0]
    return advantages


def rollout_returns(rewards: Any, discounts: Any, truncated: Any, values_t: Any) -> Any:
    """n-step returns of rollouts that may cross episode ends.

    Another episode follows a truncated step, so the recursion restarts there from the value of the final observation.

    Args:
      rewards: float32 `[B, T]`.
      discounts: float32 `[B, T]`, 0 if the step terminated the episode.
      truncated: bool `[B, T]`.
      values_t: value of the state that each step led to, `[B, T]`. The last column is the bootstrap. The other columns
        are used only where `truncated` is set.

    Returns:
      float32 `[B, T]`.
    """
    xp = rewards.__array_namespace__()

    def step(after: Any, now: Sequence[Any]) -> Any:
        reward, discount, cut, value = now
        return reward + discount * xp.where(cut, value, after)

    return _backward(step, values_t[:, -1], (rewards, discounts, truncated, values_t))


def normalized(advantage: Any, mask: Any) -> Any:
    """Normalizes `advantage` to mean 0 and standard deviation 1 where `mask` is 1. Both are float32 `[B, T]`.

    A single step stays as it is, because it would become 0.
    """
    xp = advantage.__array_namespace__()
    count = xp.maximum(mask.sum(), np.float32(1))
    mean = (advantage * mask).sum() / count
    deviation = xp.sqrt((xp.square(advantage - mean) * mask).sum() / count)
    return xp.where(count > 1, (advantage - mean) / (deviation + np.float32(1e-8)), advantage)


def _backward(step: Callable[[Any, Sequence[Any]], Any], after: Any, arrays: Sequence[Any]) -> Any:
    """The results `[N, T, ...]` of a recursion from the last step to the first.

    Args:
      step: computes the result of a step from that of the next step and the step's entries of `arrays`.
      after: the result after the last step, `[N, ...]`.
      arrays: `[N, T, ...]`.
    """
    if isinstance(arrays[0], np.ndarray):
        out = np.empty((arrays[0].shape[0], arrays[0].shape[1], *after.shape[1:]), np.float32)
        for t in reversed(range(out.shape[1])):
            after = out[:, t] = step(after, [array[:, t] for array in arrays])
        return out
    import jax  # the arrays are JAX's

    def both(after: Any, now: tuple[Any, ...]) -> tuple[Any, Any]:
        result = step(after, now)
        return result, result

    moved = tuple(jax.numpy.moveaxis(array, 1, 0) for array in arrays)
    return jax.numpy.moveaxis(jax.lax.scan(both, after, moved, reverse=True)[1], 0, 1)
