"""The loss that actor-critics share: policy, value and entropy (A3C, Mnih et al. 2016)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from gunreal.learning.objective import Objective


@dataclasses.dataclass(frozen=True)
class ActorCritic(Objective):
    """`policy + value_weight * value - entropy * H(pi)`. Subclasses define `policy_loss`, and may define `targets`.

    With bonuses that have a value of their own, the policy learns from the sum of both advantages.
    """

    values_bonuses: ClassVar[bool] = True

    def targets(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """The advantages, and the returns for the value, `[B, T]` in units of reward. The arguments are as in `loss`.

        The default is "advantage" and "returns" of the batch. It is called once more for bonuses with a value of their
        own, with this "value", and with the arrays of the batch for bonuses under the names of those for rewards.
        """
        return batch["advantage"], batch["returns"]

    def policy_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """The loss of the policy, a scalar. The arguments are as in `loss`.

        "advantage" is that of `targets`, without a gradient.
        """
        raise NotImplementedError(f"{type(self).__name__} has no policy_loss(self, outputs, batch); define it")

    def epsilon(self) -> float:
        """GA3C's epsilon inside the logarithm of the entropy. 0 adds none."""
        return 0.0

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        from gunreal.learning import losses

        scale, mask = outputs["scale"], batch["mask"]
        advantage, returns = self.targets(outputs, batch)
        value = losses.value_loss(outputs["value"] / scale, returns / scale, mask)
        found = losses.return_moments(returns, mask)
        if "bonus_value" in outputs:
            given = {name.removeprefix("bonus_"): x for name, x in batch.items() if name.startswith("bonus_")}
            own, scale = outputs["bonus_value"], outputs["bonus_scale"]
            more, returns = self.targets({**outputs, "value": own}, {**batch, **given})
            advantage, value = advantage + more, value + losses.value_loss(own / scale, returns / scale, mask)
            found |= losses.return_moments(returns, mask, "bonus_")
        policy = self.policy_loss(outputs, {**batch, "advantage": ops.stop_gradient(advantage)})
        entropy = losses.entropy(outputs["logits"], mask, self.epsilon())
        total = policy + batch["value_weight"] * value - batch["entropy"] * entropy
        return total, found | {
            "loss_base": total,
            "loss_policy": policy,
            "loss_value": value,
            "entropy": entropy,
            "value_mean": losses.masked_mean(outputs["value"], mask),
        }
