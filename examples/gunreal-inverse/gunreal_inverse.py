"""Inverse dynamics as an auxiliary task: which action led from one observation to the next? (Pathak et al. 2017)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class InverseDynamics(AuxiliaryTask):
    """Predicts the action `a_t` from the torso's features of `o_t` and `o_{t+1}`."""

    name = "inverse"
    weight: float = 0.1
    units: int = 128

    def targets(self, replay, sequences, bootstraps):
        return {"action": pad(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def head(self, spec):
        from keras import Sequential, layers, ops

        pairs = layers.Lambda(lambda x: ops.concatenate([x[:, :-1], x[:, 1:]], axis=-1))
        return Sequential([pairs, layers.Dense(self.units, activation="relu"), layers.Dense(spec.num_actions)])

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        error = ops.sparse_categorical_crossentropy(batch["action"][:, :-1], outputs, from_logits=True)
        # A masked row separates episodes, so two neighboring rows with mask 1 belong to the same episode.
        return masked_mean(error, batch["mask"][:, :-1] * batch["mask"][:, 1:])
