"""Proximal policy optimization (Schulman et al. 2017)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from gunreal.config.objective import Uses
from gunreal.config.plugins import option
from gunreal.config.schema import Config
from gunreal.experience.returns import normalized
from gunreal.experience.rollouts import Rollouts
from gunreal.objectives.actor_critic import ActorCritic

_MINIBATCH = 320  # agent steps of a minibatch, as in the default batch of the parallel runner
_MINIBATCHES = 3


@dataclasses.dataclass(frozen=True)
class Ppo(ActorCritic):
    """Proximal policy optimization: clipped probability ratios, and several epochs of minibatches per batch.

    Advantages are generalized advantage estimates (Schulman et al. 2016), normalized over the batch.

    In runs of more than 1M steps, the default learning rate and entropy weight are divided by sqrt(steps / 1M), down to
    2.5e-4 and 0.01. Device runs always have the same ones.

    Options:
      epochs: number of passes over each batch.
      minibatches: number of minibatches per pass, with one update for each. 0 means 3, and in device runs as many as
        can have 320 agent steps, but at least 3.
      overlap: number of epochs, counted from the last one, in which agents already take their next rollouts, with the
        weights from before these epochs. With 0, they wait for all updates. Larger values raise the policy lag. Without
        effect in device runs.
      clip: clip range of the probability ratio around 1.
      gae_lambda: lambda of the advantage estimates.
    """

    name: ClassVar[str] = "ppo"
    epochs: int = option(3, low=1, high=100)
    minibatches: int = option(0, low=0, high=1000)
    overlap: int = option(1, low=0, high=100)
    clip: float = option(0.1, above=0)
    gae_lambda: float = option(0.95, low=0, high=1)

    def settings(self, config: Config) -> Mapping[str, Any]:
        rate, entropy = 5e-4 if config.runner == "device" else 8e-4, 0.02
        if config.steps > 1_000_000 and config.runner != "device":
            # With the values of short runs, long ones end at lower scores.
            share = (1_000_000 / config.steps) ** 0.5
            rate, entropy = (float(f"{x:.2g}") for x in (max(rate * share, 2.5e-4), max(entropy * share, 0.01)))
        return {"learning_rate": rate, "entropy": entropy, "min_batch": 960}

    def check(self, config: Config) -> None:
        """Raises ValueError for an option without effect."""
        if config.runner == "device" and self.overlap != Ppo.overlap:
            raise ValueError("ppo.overlap has no effect in device runs; leave it out or use --runner parallel")

    def resolved(self, config: Config) -> Self:
        size = config.agents // config.device_batches * config.t_max if config.runner == "device" else 0
        return dataclasses.replace(self, minibatches=self.minibatches or max(_MINIBATCHES, size // _MINIBATCH))

    def uses(self) -> Uses:
        return Uses(self.epochs, self.minibatches or _MINIBATCHES, self.overlap)

    def inputs(self, rollouts: Rollouts) -> dict[str, Any]:
        """float32 "advantage", "returns" (the targets of the value) and "log_mu"."""
        advantage = rollouts.advantages(self.gae_lambda)
        return {"advantage": advantage, "returns": advantage + rollouts.value, "log_mu": rollouts.log_mu}

    def prepared(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Normalizes the advantages. Those of bonuses are added before."""
        part = dict(part)
        if "bonus_advantage" in part:
            part["advantage"] = part["advantage"] + part["bonus_advantage"]
            part["bonus_advantage"] = part["bonus_advantage"] * 0  # which the sum contains already
        return part | {"advantage": normalized(part["advantage"], part["mask"])}

    def policy_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        from gunreal.learning import losses

        log_rho = losses.log_probability(outputs["logits"], batch["action"]) - batch["log_mu"]
        return losses.clipped_policy_loss(log_rho, batch["advantage"], batch["mask"], self.clip)
