"""The objectives of the actor-critic: the policy gradient with GA3C's epsilon or V-trace, and PPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import ops

from gunreal.learning import losses


def actor_critic_loss(
    base: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    entropy: float,
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


def _corrected(base: Mapping[str, Any], outputs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns and advantages `[B, T]`, n-step or V-trace."""
    if "returns" in base:
        return base["returns"], base["returns"] - outputs["value"]
    log_rho = losses.log_probability(outputs["logits"], base["action"]) - base["log_mu"]
    return losses.vtrace(
        log_rho, base["reward"], base["discount"], base["truncated"], outputs["value"], base["value_t"]
    )
