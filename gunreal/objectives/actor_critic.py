"""The loss that actor-critics share: policy, value and entropy (A3C, Mnih et al. 2016)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from gunreal.learning.objective import Objective


@dataclasses.dataclass(frozen=True)
class ActorCritic(Objective):
    """`policy + value_weight * value - entropy * H(pi)`. Subclasses define the policy's part and the returns.

    For bonuses with a value of their own, the first two are computed once more, and added. These values are not
    normalized, because tasks choose the scale of their bonuses.
    """

    values_bonuses: ClassVar[bool] = True

    def policy_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """The loss of the policy, a scalar, and the returns `[B, T]` for the value. See `loss` for the arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no policy_loss(self, outputs, batch); define it")

    def epsilon(self) -> float:
        """GA3C's epsilon inside the logarithm of the entropy. 0 adds none."""
        return 0.0

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        from gunreal.learning import losses

        scale, mask = outputs["scale"], batch["mask"]
        policy, returns = self.policy_loss(outputs, batch)
        value = losses.value_loss(outputs["value"] / scale, returns / scale, mask)
        if "bonus_value" in outputs:
            own = {name.removeprefix("bonus_"): x for name, x in batch.items() if name.startswith("bonus_")}
            unscaled = {**outputs, "value": outputs["bonus_value"], "scale": 1.0}
            more, wanted = self.policy_loss(unscaled, {**batch, **own})
            policy += more
            value += losses.value_loss(outputs["bonus_value"], wanted, mask)
        return_mean = losses.masked_mean(returns, mask)
        entropy = losses.entropy(outputs["logits"], mask, self.epsilon())
        total = policy + batch["value_weight"] * value - batch["entropy"] * entropy
        return total, {
            "loss_base": total,
            "loss_policy": policy,
            "loss_value": value,
            "entropy": entropy,
            "value_mean": losses.masked_mean(outputs["value"], mask),
            "return_mean": return_mean,
            "return_deviation": ops.sqrt(losses.masked_mean(ops.square(returns - return_mean), mask)),
        }
