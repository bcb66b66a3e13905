"""The losses of the actor-critic: pure functions of tensors, unweighted, averaged over the steps whose mask is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops


def masked_mean(x: Any, mask: Any) -> Any:
    """Mean of `x` over the steps where `mask` is 1, a scalar. It is 0 if there are none. Both have the same shape."""
    return ops.sum(x * mask) / ops.maximum(ops.sum(mask), 1.0)


def return_moments(returns: Any, mask: Any, kind: str = "") -> dict[str, Any]:
    """The metrics by which a value is normalized: mean and standard deviation of its returns, float32 `[B, T]`.

    `kind` is "", or "bonus_" for the value of bonuses.
    """
    mean = masked_mean(returns, mask)
    deviation = ops.sqrt(masked_mean(ops.square(returns - mean), mask))
    return {f"{kind}return_mean": mean, f"{kind}return_deviation": deviation}


def masks_ahead(mask: Any, steps: int) -> list[Any]:
    """Which predictions of later steps to learn from.

    Args:
      mask: float32 `[B, T]`.
      steps: maximum number of steps ahead.

    Returns:
      For each of 1, 2, ... `steps` steps ahead, float32 `[B, T - ahead]`. It is 1 for the first steps from which on the
      mask is 1 up to the predicted step, so that predictions stay within an episode.
    """
    masks = [mask]
    for ahead in range(1, steps + 1):
        masks.append(masks[-1][:, :-1] * mask[:, ahead:])
    return masks[1:]


def mean_ahead(errors: Sequence[Any], mask: Any) -> Any:
    """Mean error of predictions 1, 2, ... steps ahead, float32 `[B, T - ahead]` each, over those within an episode."""
    masks = masks_ahead(mask, len(errors))
    total = sum(ops.sum(kept * error) for kept, error in zip(masks, errors, strict=True))
    return total / ops.maximum(sum(map(ops.sum, masks)), 1.0)


def unit(x: Any, least: float) -> Any:
    """Scales `x` `[..., F]` to length 1. `least` is added to the squared length, and bounds the gradient at 0."""
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + least)


def log_probability(logits: Any, action: Any) -> Any:
    """`log pi(a_t|s_t)`, float32 `[B, T]`, for logits float32 `[B, T, A]` and actions int32 `[B, T]`."""
    return ops.sum(ops.log_softmax(logits) * ops.one_hot(action, logits.shape[-1], dtype=logits.dtype), axis=-1)


def policy_gradient_loss(logits: Any, action: Any, advantage: Any, mask: Any, epsilon: float) -> Any:
    """Policy-gradient loss `-log(pi(a_t|s_t) + epsilon) * advantage_t` (GA3C, eq. 5).

    Epsilon bounds the gradient for improbable actions.

    Args:
      logits: float32 `[B, T, A]`.
      action: int32 `[B, T]`.
      advantage: `R_t - V(s_t)`, float32 `[B, T]`. No gradient flows into it.
      mask: float32 `[B, T]`.
      epsilon: constant added to the probability inside the logarithm. 0 gives the plain policy gradient.
    """
    if epsilon:
        pi_a = ops.sum(ops.softmax(logits) * ops.one_hot(action, logits.shape[-1], dtype=logits.dtype), axis=-1)
        log_pi = ops.log(pi_a + epsilon)
    else:
        log_pi = log_probability(logits, action)
    return -masked_mean(log_pi * ops.stop_gradient(advantage), mask)


def clipped_policy_loss(log_rho: Any, advantage: Any, mask: Any, clip: float) -> Any:
    """PPO's policy loss `-min(rho_t A_t, clip(rho_t, 1 - clip, 1 + clip) A_t)` (Schulman et al. 2017, eq. 7).

    Args:
      log_rho: `log pi(a_t|s_t) - log mu(a_t|s_t)`, float32 `[B, T]`.
      advantage: float32 `[B, T]`. No gradient flows into it.
      mask: float32 `[B, T]`.
      clip: clip range of the probability ratio around 1.
    """
    rho, advantage = ops.exp(log_rho), ops.stop_gradient(advantage)
    return -masked_mean(ops.minimum(rho * advantage, ops.clip(rho, 1 - clip, 1 + clip) * advantage), mask)


def entropy(logits: Any, mask: Any, epsilon: float) -> Any:
    """Entropy of the policy in nats, `-sum_a pi(a) log(pi(a) + epsilon)` (GA3C, eq. 5). Subtract it from the loss.

    Args:
      logits: float32 `[B, T, A]`.
      mask: float32 `[B, T]`.
      epsilon: as in `policy_gradient_loss`.
    """
    pi = ops.softmax(logits)
    log_pi = ops.log(pi + epsilon) if epsilon else ops.log_softmax(logits)
    return -masked_mean(ops.sum(pi * log_pi, axis=-1), mask)


def value_loss(value: Any, returns: Any, mask: Any) -> Any:
    """Value loss `0.5 (R_t - V(s_t))^2`. All arguments are float32 `[B, T]`. No gradient flows into `returns`."""
    return masked_mean(0.5 * ops.square(ops.stop_gradient(returns) - value), mask)


def vtrace(log_rho: Any, reward: Any, discount: Any, truncated: Any, value: Any, value_t: Any) -> tuple[Any, Any]:
    """V-trace targets and advantages (IMPALA, Espeholt et al. 2018, eq. 1 and section 4.2), with both clips at 1.

    If the acting policy equals the learned policy, the targets are the n-step returns and the advantages are these
    returns minus the values. Another episode follows a truncated step, so the recursion restarts there from the value
    of the final observation.

    All arguments and results are float32 `[B, T]`.

    Args:
      log_rho: `log pi(a_t|s_t) - log mu(a_t|s_t)`.
      reward: clipped reward of each step.
      discount: discount of each step, 0 if the step terminated the episode.
      truncated: 1 if the step truncated the episode, else 0.
      value: `V(s_t)` of the learned network.
      value_t: value of the state that each step led to, according to the acting network. The last column is the
        bootstrap. The other columns are used only where `truncated` is 1.

    Returns:
      Targets of the value, and advantages of the policy. No gradient flows through them.
    """
    rho = ops.minimum(ops.exp(log_rho), 1.0)

    def behind(x: Any) -> Any:
        following = ops.concatenate([x[:, 1:], value_t[:, -1:]], axis=1)
        return truncated * value_t + (1 - truncated) * following

    delta = rho * (reward + discount * behind(value) - value)
    trace = rho * discount * (1 - truncated)
    correction = ops.zeros_like(delta[:, 0])
    corrections = []
    for t in reversed(range(delta.shape[1])):
        correction = delta[:, t] + trace[:, t] * correction
        corrections.append(correction)
    target = value + ops.stack(corrections[::-1], axis=1)
    advantage = rho * (reward + discount * behind(target) - value)
    return ops.stop_gradient(target), ops.stop_gradient(advantage)
