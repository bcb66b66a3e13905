"""The objectives of the base: the policy gradient with GA3C's epsilon or V-trace, PPO, and DQN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import ops

from gunreal.learning import losses


def actor_critic_loss(
    base: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    entropy: Any,
    value_weight: float,
    log_epsilon: float = 0.0,
    clip: float = 0.0,
) -> tuple[Any, dict[str, Any]]:
    """The loss of the base rollouts and its metrics.

    See `Network.loss` for the arguments. `outputs` are those of `Network.policy_value`.
    """
    scale, mask = outputs["scale"], base["mask"]
    if "advantage" in base:
        returns = base["returns"]
        log_rho = losses.log_probability(outputs["logits"], base["action"]) - base["log_mu"]
        policy = losses.clipped_policy_loss(log_rho, base["advantage"], mask, clip)
    else:
        returns, advantage = _corrected(base, outputs)
        policy = losses.policy_gradient_loss(outputs["logits"], base["action"], advantage / scale, mask, log_epsilon)
    value = losses.value_loss(outputs["value"] / scale, returns / scale, mask)
    return_mean = losses.masked_mean(returns, mask)
    policy_entropy = losses.entropy(outputs["logits"], base["mask"], log_epsilon)
    total = policy + value_weight * value - entropy * policy_entropy
    return total, {
        "loss_base": total,
        "loss_policy": policy,
        "loss_value": value,
        "entropy": policy_entropy,
        "value_mean": losses.masked_mean(outputs["value"], base["mask"]),
        "return_mean": return_mean,
        "return_deviation": ops.sqrt(losses.masked_mean(ops.square(returns - return_mean), mask)),
    }


def q_learning_loss(base: Mapping[str, Any], outputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """DQN's loss and its metrics: the Huber loss of `Q_target - Q(s_t, a_t)` (Mnih et al. 2015).

    The logits are the Q values. With priorities, "weight" `[B]` has the importance weight of each sequence.
    """
    q, mask = outputs["logits"], base["mask"]
    taken = ops.sum(q * ops.one_hot(base["action"], q.shape[-1], dtype=q.dtype), axis=-1)
    error = ops.abs(ops.stop_gradient(base["q_target"]) - taken)
    huber = ops.where(error < 1, 0.5 * ops.square(error), error - 0.5)
    if "weight" in base:
        huber = huber * ops.expand_dims(base["weight"], 1)
    loss = losses.masked_mean(huber, mask)
    mean = losses.masked_mean(base["q_target"], mask)
    return loss, {
        "loss_base": loss,
        "loss_value": loss,
        "value_mean": losses.masked_mean(ops.max(q, axis=-1), mask),
        "return_mean": mean,
        "return_deviation": ops.sqrt(losses.masked_mean(ops.square(base["q_target"] - mean), mask)),
    }


def _corrected(base: Mapping[str, Any], outputs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns and advantages `[B, T]`, n-step or V-trace."""
    if "returns" in base:
        return base["returns"], base["returns"] - outputs["value"]
    log_rho = losses.log_probability(outputs["logits"], base["action"]) - base["log_mu"]
    return losses.vtrace(
        log_rho, base["reward"], base["discount"], base["truncated"], outputs["value"], base["value_t"]
    )
