"""DeepMDP: which reward and which features follow an action? (Gelada et al. 2019)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class DeepMdp(AuxiliaryTask):
    """Predicts the reward and the next features of the torso from the present features and the action.

    The predicted transition is deterministic, so the Wasserstein distance of the paper is that of two points.
    """

    name = "deepmdp"
    weight: float = 0.1
    units: int = 128

    def targets(self, replay, sequences, bootstraps):
        (first, length), t_max = sequences, replay.spec.t_max
        action, reward = replay.get("action", first, t_max), replay.rewards(first, t_max)
        return {"action": pad(action, length), "reward": pad(reward, length)}

    def head(self, spec):
        from keras import Sequential, layers, ops

        units = self.units

        class LatentModel(layers.Layer):
            def build(self, shape):
                self.reward, self.next = (
                    Sequential([layers.Dense(units, activation="relu"), layers.Dense(size)]) for size in (1, shape[-1])
                )
                for part in (self.reward, self.next):
                    part.build((*shape[:-1], shape[-1] + spec.num_actions))

            def call(self, x, batch=None):
                if batch is None:
                    return x
                pair = ops.concatenate([x, ops.one_hot(batch["action"], spec.num_actions, dtype=x.dtype)], axis=-1)
                return {"features": x, "reward": self.reward(pair)[..., 0], "next": self.next(pair)}

        return LatentModel()

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean, masks_ahead

        reward = masked_mean(ops.abs(batch["reward"] - outputs["reward"]), batch["mask"])
        error = ops.sum(ops.square(outputs["features"][:, 1:] - outputs["next"][:, :-1]), axis=-1)
        distance = ops.sqrt(error + 1e-12)  # the gradient of the root is infinite at 0
        transition = masked_mean(distance, *masks_ahead(batch["mask"], 1))
        return reward + transition, {"reward": reward, "transition": transition}
