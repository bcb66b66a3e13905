"""ICM: which action led from one observation to the next, and to which features does it lead? (Pathak et al. 2017)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class Icm(AuxiliaryTask):
    """The inverse and the forward model of the intrinsic curiosity module, on the features of the torso.

    The error of the forward model is a reward, because it is large where the agent has rarely been.

    Options:
      forward: share beta of the forward model in the loss.
      reward: factor eta of the reward.
      bonus_discount: discount of the value that learns this reward. In the paper, one value learns both rewards.
    """

    name = "icm"
    bonus_steps = 2
    weight: float = 0.1
    forward: float = 0.2
    reward: float = 0.01
    bonus_discount: float = 0.99
    units: int = 128

    def targets(self, replay, sequences, bootstraps):
        return {"action": pad(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def head(self, spec):
        from keras import Sequential, layers, ops

        units = self.units

        class Curiosity(layers.Layer):
            def build(self, shape):
                def model(inputs, outputs):
                    made = Sequential([layers.Dense(units, activation="relu"), layers.Dense(outputs)])
                    made.build((*shape[:-1], shape[-1] + inputs))
                    return made

                self.inverse = model(shape[-1], spec.num_actions)
                self.forward = model(spec.num_actions, shape[-1])

            def call(self, x, batch=None):
                if batch is None:
                    return x
                now, later = x[:, :-1], x[:, 1:]
                action = ops.one_hot(batch["action"][:, :-1], spec.num_actions, dtype=x.dtype)
                found = self.forward(ops.concatenate([now, action], axis=-1))
                return {"action": self.inverse(ops.concatenate([now, later], axis=-1)), "next": later, "found": found}

        return Curiosity()

    def bonus(self, outputs, observations, state):
        from keras import ops

        return self.reward * 0.5 * ops.sum(ops.square(outputs["found"] - outputs["next"]), axis=(1, 2))

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean, masks_ahead

        (mask,), action = masks_ahead(batch["mask"], 1), batch["action"][:, :-1]
        inverse = masked_mean(ops.sparse_categorical_crossentropy(action, outputs["action"], from_logits=True), mask)
        forward = masked_mean(0.5 * ops.sum(ops.square(outputs["found"] - outputs["next"]), axis=-1), mask)
        return (1 - self.forward) * inverse + self.forward * forward, {"inverse": inverse, "forward": forward}
