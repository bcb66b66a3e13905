"""A linear probe: do the features say what was done before? (Alain and Bengio 2016)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class ActionProbe(AuxiliaryTask):
    """Predicts the last action from the features of an observation, and does not train them."""

    name = "probe"
    trains_torso = False

    def targets(self, replay, sequences, bootstraps):
        return {"action": pad(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def head(self, spec):
        from keras import layers

        return layers.Dense(spec.num_actions)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean, masks_ahead

        action, logits, (mask,) = batch["action"][:, :-1], outputs[:, 1:], masks_ahead(batch["mask"], 1)
        right = ops.cast(ops.argmax(logits, axis=-1) == ops.cast(action, "int32"), "float32")
        error = ops.sparse_categorical_crossentropy(action, logits, from_logits=True)
        return masked_mean(error, mask), {"accuracy": masked_mean(right, mask)}
