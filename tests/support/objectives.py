"""An objective that keeps the contract, and objectives that each break one rule of it; for the tests of objectives."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gunreal.config.objective import Phase
from gunreal.config.plugins import option
from gunreal.objectives.base import Objective
from gunreal.objectives.ppo import Ppo


@dataclasses.dataclass(frozen=True)
class Penalized(Ppo):
    """PPO with a penalty on the KL divergence in place of the clipped ratio (Schulman et al. 2017, eq. 8)."""

    name: ClassVar[str] = "penalized"
    penalty: float = option(1.0, low=0)

    def settings(self, config):
        return {**super().settings(config), "entropy": 0.005}

    def policy_loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning import losses

        log_rho = losses.log_probability(outputs["logits"], batch["action"]) - batch["log_mu"]
        rho = ops.exp(log_rho)
        divergence = rho - 1 - log_rho
        loss = losses.masked_mean(self.penalty * divergence - rho * batch["advantage"], batch["mask"])
        return loss, batch["returns"]


@dataclasses.dataclass(frozen=True)
class Phased(Penalized):
    """The same, with a phase after every second batch in which the policy stays as it was."""

    name: ClassVar[str] = "phased"

    def phase(self):
        return Phase(2, epochs=3)

    def phase_loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning import losses

        change = ops.sum(ops.square(outputs["logits"] - batch["old_logits"]), axis=-1)
        loss = losses.masked_mean(change + ops.square(outputs["value"] - batch["returns"]), batch["mask"])
        return loss, {"loss_base": loss, "return_mean": 0.0 * loss, "return_deviation": 0.0 * loss}


class NoObjective:
    name = "none"


class Misnamed(Penalized):
    name = "my objective"


class Unannotated(Penalized):
    penalty = 2.0


class NoRate(Penalized):
    def settings(self, config):
        return {"entropy": 0.1}


class NoUses(Penalized):
    def uses(self):
        return 3


class NoPhase(Penalized):
    def phase(self):
        return 2


class NoPhaseLoss(Penalized):
    def phase(self):
        return Phase(2)


class Replaying(Objective):
    name = "replaying"
    replays = True


class NoInputs(Objective):
    name = "no_inputs"


class OfNumPyOnly(Penalized):
    def inputs(self, rollouts):
        import numpy as np

        return {**super().inputs(rollouts), "rank": np.asarray(rollouts.reward.tolist(), np.float32)}


class OtherInJax(Penalized):
    def inputs(self, rollouts):
        import numpy as np

        return {**super().inputs(rollouts), "more": rollouts.reward + isinstance(rollouts.reward, np.ndarray)}


class Infinite(Penalized):
    def inputs(self, rollouts):
        return {**super().inputs(rollouts), "more": rollouts.reward / 0}


class Double(Penalized):
    def inputs(self, rollouts):
        return {**super().inputs(rollouts), "more": rollouts.reward.astype("float64")}


class Failing(Penalized):
    def loss(self, outputs, batch):
        return batch["nothing"], {}


class Moments(Penalized):
    def loss(self, outputs, batch):
        loss, _ = super().loss(outputs, batch)
        return loss, {"loss_base": loss}


class Unmasked(Penalized):
    def loss(self, outputs, batch):
        from keras import ops

        loss, metrics = super().loss(outputs, batch)
        loss = loss + ops.mean(ops.square(batch["returns"] - outputs["value"]))
        return loss, metrics | {"loss_base": loss}


class Dividing(Penalized):
    def loss(self, outputs, batch):
        from keras import ops

        loss, metrics = super().loss(outputs, batch)
        loss = loss / ops.sum(batch["mask"])
        return loss, metrics | {"loss_base": loss}


class Valueless(Penalized):
    def loss(self, outputs, batch):
        from keras import ops

        return super().loss({**outputs, "value": ops.stop_gradient(outputs["value"])}, batch)
