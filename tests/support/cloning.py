"""A task that learns from a recording. Agent processes import it by its name."""

from __future__ import annotations

import dataclasses

from keras import ops

from gunreal.learning.losses import log_probability, masked_mean
from gunreal.tasks import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class Cloning(AuxiliaryTask):
    """Imitates the actions of a recording."""

    name = "bc"
    data: str = ""

    def source(self, spec):
        return self.data

    def targets(self, replay, sequences, bootstraps):
        return {"action": replay.get("action", sequences.first, replay.spec.t_max)}

    def loss(self, outputs, batch):
        chosen = log_probability(outputs["logits"], batch["action"])
        right = ops.cast(ops.equal(ops.argmax(outputs["logits"], -1), batch["action"]), "float32")
        return -masked_mean(chosen, batch["mask"]), {"right": masked_mean(right, batch["mask"])}
