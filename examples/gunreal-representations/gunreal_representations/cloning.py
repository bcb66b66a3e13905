"""Behavior cloning beside the reward: imitates recorded actions (Pomerleau 1991)."""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class Cloning(AuxiliaryTask):
    """Maximizes the probability of the actions of a recording.

    Options:
      data: the folder of a recording. It is required.
    """

    name = "bc"
    data: str = ""

    def check(self, spec):
        if not self.data:
            raise ValueError("it needs a recording; add --task bc.data=FOLDER")

    def source(self, spec):
        return self.data

    def targets(self, replay, sequences, bootstraps):
        return {"action": replay.get("action", sequences.first, replay.spec.t_max)}

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        action, logits = batch["action"], outputs["logits"]
        right = ops.cast(ops.argmax(logits, axis=-1) == ops.cast(action, "int32"), "float32")
        error = ops.sparse_categorical_crossentropy(action, logits, from_logits=True)
        return masked_mean(error, batch["mask"]), {"accuracy": masked_mean(right, batch["mask"])}
