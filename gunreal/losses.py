"""The losses of the actor-critic: pure functions of tensors, unweighted, means over the steps that the mask keeps."""

from __future__ import annotations

from typing import Any

from keras import ops


def masked_mean(x: Any, mask: Any) -> Any:
    """Mean of `x` over the steps where `mask` is 1; 0 where there are none. Both of one shape; a scalar."""
    return ops.sum(x * mask) / ops.maximum(ops.sum(mask), 1.0)


def policy_gradient_loss(logits: Any, action: Any, advantage: Any, mask: Any, epsilon: float) -> Any:
    """`-log(pi(a_t|s_t) + epsilon) * advantage_t` (GA3C, eq. 5): epsilon bounds the gradient of improbable actions.

    Args:
      logits: float32 `[B, T, A]`.
      action: int32 `[B, T]`.
      advantage: float32 `[B, T]`, `R_t - V(s_t)`; no gradient flows into it.
      mask: float32 `[B, T]`.
      epsilon: added to the probability inside the logarithm.
    """
    pi_a = ops.sum(ops.softmax(logits) * ops.one_hot(action, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return -masked_mean(ops.log(pi_a + epsilon) * ops.stop_gradient(advantage), mask)


def entropy(logits: Any, mask: Any, epsilon: float) -> Any:
    """Entropy of the policy, `-sum_a pi(a) log(pi(a) + epsilon)`, in nats (GA3C, eq. 5); maximised, so subtract it.

    Args:
      logits: float32 `[B, T, A]`.
      mask: float32 `[B, T]`.
      epsilon: as in `policy_gradient_loss`.
    """
    pi = ops.softmax(logits)
    return -masked_mean(ops.sum(pi * ops.log(pi + epsilon), axis=-1), mask)


def value_loss(value: Any, returns: Any, mask: Any) -> Any:
    """`0.5 (R_t - V(s_t))^2`. All float32 `[B, T]`; `returns` are targets and pass no gradient on."""
    return masked_mean(0.5 * ops.square(ops.stop_gradient(returns) - value), mask)
