"""RND: how new is a frame to a network that predicts frozen random features of it? (Burda et al. 2019)"""

from __future__ import annotations

import dataclasses
import math

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class Rnd(AuxiliaryTask):
    """Predicts random features of the newest frame. The error is a reward, because it is large for new frames.

    Running moments normalize the frames, and the errors for the reward. The predictor learns slowly, so that a frame
    stays new for a while.

    Options:
      reward: factor of the reward, which is then scaled so that returns are about as large for all discounts.
      bonus_discount: discount of the value that learns this reward. With 0, that of the environment's reward does.
      units: number of random features.
      hidden: units of the predictor's hidden layer.
    """

    name = "rnd"
    trains_torso = False
    rate = 0.1
    weight: float = 1.0
    reward: float = 1.0
    bonus_discount: float = 0.99
    units: int = 64
    hidden: int = 128

    def targets(self, replay, sequences, bootstraps):
        return {"frame": pad(replay.get("frame", sequences.first, replay.spec.t_max), sequences.length)}

    def state(self, spec):
        import numpy as np
        from keras import initializers

        unknown, size = np.array([0, 1, 0], "f4"), math.prod(spec.frame)  # the mean, the variance and the count
        random = initializers.Orthogonal(2**0.5)((size, self.units))
        return {"random": random, "pixels": unknown[:, None].repeat(size, 1), "error": unknown}

    def head(self, spec):
        from keras import Sequential, layers, ops

        hidden, units, size = self.hidden, self.units, math.prod(spec.frame)

        class Error(layers.Layer):
            def build(self, shape):
                self.predictor = Sequential([layers.Dense(hidden, activation="relu"), layers.Dense(units)])
                self.predictor.build((None, size))

            def call(self, x, net=None):
                if net is None:
                    return x[..., 0]
                frames = ops.reshape(net.observations, (-1, math.prod(spec.observation)))[:, -size:]
                mean, variance, _ = ops.unstack(net.state["pixels"])
                normal = (ops.cast(frames, "float32") - mean) * ops.rsqrt(ops.maximum(variance, 1.0))
                normal = ops.clip(normal, -5.0, 5.0)
                wanted = ops.relu(ops.matmul(normal, net.state["random"]))
                error = ops.mean(ops.square(self.predictor(normal) - wanted), axis=-1)
                return ops.reshape(error, ops.shape(x)[:-1])

        return Error()

    def bonus(self, outputs, observations, state):
        from keras import ops

        return self.reward * (1 - self.bonus_discount) * outputs[:, 0] * ops.rsqrt(state["error"][1])

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning.normalizer import Moments, merge, moments
        from gunreal.tasks import masked_mean

        state, mask = batch["state"], ops.reshape(batch["mask"], (-1,))

        def merged(name, seen, most):
            found = merge(Moments(*ops.unstack(state[name])), moments(seen, mask, (0,)), most, ops)
            return ops.stack([ops.broadcast_to(x, state[name].shape[1:]) for x in found])

        pixels = ops.cast(ops.reshape(batch["frame"], (-1, state["random"].shape[0])), "float32")
        error = ops.reshape(outputs, (-1,))
        new = {"pixels": merged("pixels", pixels, math.inf), "error": merged("error", error, 4000.0)}
        return masked_mean(outputs, batch["mask"]), {"deviation": ops.sqrt(new["error"][1])}, new
