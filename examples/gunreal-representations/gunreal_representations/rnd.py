"""RND: how new is a frame to a network that predicts frozen random features of it? (Burda et al. 2019)"""

from __future__ import annotations

import dataclasses
import math

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class Rnd(AuxiliaryTask):
    """Predicts random features of the newest frame. The error is a reward, because it is large for new frames.

    Running moments normalize the frames, and the errors for the reward. Unlike in the paper, the predictor shares the
    torso of the policy, and one value learns both rewards.

    Options:
      reward: factor of the reward.
      units: number of random features.
    """

    name = "rnd"
    weight: float = 0.1
    reward: float = 0.1
    units: int = 64

    def targets(self, replay, sequences, bootstraps):
        return {"frame": pad(replay.get("frame", sequences.first, replay.spec.t_max), sequences.length)}

    def state(self, spec):
        import numpy as np
        from keras import initializers

        size, shapes = math.prod(spec.frame), {"pixel": (math.prod(spec.frame),), "error": ()}
        state = {"random": initializers.Orthogonal(2**0.5)((size, self.units))}
        for name, shape in shapes.items():
            state |= {f"{name}_mean": np.zeros(shape, "f4"), f"{name}_variance": np.ones(shape, "f4")}
            state[f"{name}_count"] = np.zeros((), "f4")
        return state

    def head(self, spec):
        from keras import layers

        return layers.Dense(self.units)

    def bonus(self, outputs, observations, state):
        from keras import ops

        pixels = ops.reshape(observations, (-1, math.prod(observations.shape[1:])))
        newest = ops.cast(pixels[:, -state["random"].shape[0] :], "float32")
        return self.reward * self.error(outputs[:, 0], newest, state) * ops.rsqrt(state["error_variance"])

    def error(self, outputs, pixels, state):
        from keras import ops

        deviation = ops.sqrt(ops.maximum(state["pixel_variance"], 1e-2))
        normal = ops.clip((pixels - state["pixel_mean"]) / deviation, -5.0, 5.0)
        wanted = ops.relu(ops.matmul(normal, state["random"]))
        return ops.mean(ops.square(outputs - wanted), axis=-1)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning.normalizer import Moments, merge, moments
        from gunreal.tasks import masked_mean

        state, mask, new = batch["state"], ops.reshape(batch["mask"], (-1,)), {}
        pixels = ops.cast(ops.reshape(batch["frame"], (-1, state["random"].shape[0])), "float32")
        error = self.error(ops.reshape(outputs, (-1, self.units)), pixels, state)
        for name, seen in (("pixel", pixels), ("error", error)):
            known = Moments(*(state[f"{name}_{part}"] for part in Moments._fields))
            merged = merge(known, moments(seen, mask, (0,)), math.inf, ops)
            new |= {f"{name}_{part}": array for part, array in merged._asdict().items()}
        return masked_mean(error, mask), {"seen": new["pixel_count"]}, new
