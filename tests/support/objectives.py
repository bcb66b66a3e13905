"""An objective that keeps the contract, and objectives that each break one rule of it; for the tests of objectives."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from defining import define

from gunreal.config.objective import Phase
from gunreal.config.plugins import option
from gunreal.learning.objective import Objective
from gunreal.objectives.a3c import A3c
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
        return losses.masked_mean(self.penalty * divergence - rho * batch["advantage"], batch["mask"])


@dataclasses.dataclass(frozen=True)
class Phased(Penalized):
    """The same, with a phase after every second batch in which the policy stays as it was."""

    name: ClassVar[str] = "phased"
    values_bonuses: ClassVar[bool] = False

    def phase(self):
        return Phase(2, epochs=3)

    def phase_loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning import losses

        change = ops.sum(ops.square(outputs["logits"] - batch["old_logits"]), axis=-1)
        loss = losses.masked_mean(change + ops.square(outputs["value"] - batch["returns"]), batch["mask"])
        return loss, {"loss_base": loss, "return_mean": 0.0 * loss, "return_deviation": 0.0 * loss}


@dataclasses.dataclass(frozen=True)
class OfTheAdvantage(A3c):
    """Has a policy loss without the policy."""

    name: ClassVar[str] = "advantage"

    def policy_loss(self, outputs, batch):
        from gunreal.learning import losses

        return losses.masked_mean(batch["advantage"], batch["mask"])


class NoObjective:
    name = "none"


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


def with_input(make):
    """Inputs with another one that is `make(rewards)`."""
    return {"inputs": lambda self, rollouts: {**Penalized.inputs(self, rollouts), "more": make(rollouts.reward)}}


define(
    __name__,
    Penalized,
    Misnamed={"name": "my objective"},
    Unannotated={"penalty": 2.0},
    NoRate={"settings": lambda self, config: {"entropy": 0.1}},
    NoUses={"uses": lambda self: 3},
    NoPhase={"phase": lambda self: 2},
    NoPhaseLoss={"phase": lambda self: Phase(2)},
    NoBonuses={"phase": Phased.phase, "phase_loss": Phased.phase_loss},
    OfNumPyOnly=with_input(lambda reward: np.asarray(reward.tolist(), np.float32)),
    OtherInJax=with_input(lambda reward: reward + isinstance(reward, np.ndarray)),
    Infinite=with_input(lambda reward: reward / 0),
    Double=with_input(lambda reward: reward.astype("float64")),
    Failing={"loss": lambda self, outputs, batch: (batch["nothing"], {})},
)
define(__name__, Objective, Replaying={"name": "replaying", "replays": True}, NoInputs={"name": "no_inputs"})
