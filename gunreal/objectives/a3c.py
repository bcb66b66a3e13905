"""A3C, with V-trace or with GA3C's epsilon against the policy lag."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from gunreal.config.plugins import option
from gunreal.config.schema import Config
from gunreal.experience.returns import rollout_returns
from gunreal.experience.rollouts import Rollouts
from gunreal.objectives.actor_critic import ActorCritic


@dataclasses.dataclass(frozen=True)
class A3c(ActorCritic):
    """Advantage actor-critic with n-step returns, which uses each batch once (A3C, Mnih et al. 2016).

    Options:
      correction: off-policy correction: "vtrace" (IMPALA, Espeholt et al. 2018), or "epsilon" (GA3C's epsilon inside
        log pi).
      log_epsilon: GA3C's epsilon inside log pi.
    """

    name: ClassVar[str] = "a3c"
    correction: str = option("vtrace", choices=("epsilon", "vtrace"))
    log_epsilon: float = option(1e-6, above=0, below=1)

    def check(self, config: Config) -> None:
        """Raises ValueError for an option without effect."""
        if self.correction == "vtrace" and self.log_epsilon != A3c.log_epsilon:
            raise ValueError("a3c.log_epsilon has no effect on vtrace; leave it out or add correction=epsilon")

    def epsilon(self) -> float:
        return self.log_epsilon if self.correction == "epsilon" else 0.0

    def inputs(self, rollouts: Rollouts) -> dict[str, Any]:
        """float32 "returns", or the arguments of `losses.vtrace`."""
        if self.correction == "epsilon":
            returns = rollout_returns(rollouts.reward, rollouts.discount, rollouts.truncated, rollouts.value_t)
            return {"returns": returns}
        xp = rollouts.reward.__array_namespace__()
        names = ("reward", "discount", "value_t", "log_mu")
        truncated = xp.astype(rollouts.truncated, xp.float32)
        return {name: getattr(rollouts, name) for name in names} | {"truncated": truncated}

    def targets(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, Any]:
        from gunreal.learning import losses

        value = outputs["value"]
        if self.correction == "epsilon":
            return batch["returns"] - value, batch["returns"]
        log_rho = losses.log_probability(outputs["logits"], batch["action"]) - batch["log_mu"]
        reward, discount, truncated = batch["reward"], batch["discount"], batch["truncated"]
        returns, advantage = losses.vtrace(log_rho, reward, discount, truncated, value, batch["value_t"])
        return advantage, returns

    def policy_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        from gunreal.learning import losses

        advantage = batch["advantage"] / outputs["scale"]
        return losses.policy_gradient_loss(outputs["logits"], batch["action"], advantage, batch["mask"], self.epsilon())
