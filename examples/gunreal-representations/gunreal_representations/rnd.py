"""RND: how new is a frame to a network that predicts frozen random features of it? (Burda et al. 2019)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, pad


@dataclasses.dataclass(frozen=True)
class Rnd(AuxiliaryTask):
    """Predicts random features of the newest frame, which running moments normalize.

    The predictor shares the torso of the policy, unlike that of the paper. The error is no reward here.
    """

    name = "rnd"
    weight: float = 0.1
    units: int = 64

    def targets(self, replay, sequences, bootstraps):
        return {"frame": pad(replay.get("frame", sequences.first, replay.spec.t_max), sequences.length)}

    def state(self, spec):
        import math

        import numpy as np
        from keras import initializers

        size = math.prod(spec.frame)
        moments = {"mean": np.zeros(size, "f4"), "variance": np.ones(size, "f4"), "count": np.zeros((), "f4")}
        return {**moments, "random": initializers.Orthogonal(2**0.5)((size, self.units))}

    def head(self, spec):
        from keras import layers

        return layers.Dense(self.units)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        state, mask = batch["state"], batch["mask"][..., None]
        pixels = ops.cast(ops.reshape(batch["frame"], (-1, outputs.shape[1], state["mean"].shape[0])), "float32")
        seen = ops.sum(mask)
        mean = ops.sum(pixels * mask, axis=(0, 1)) / ops.maximum(seen, 1.0)
        variance = ops.sum(ops.square(pixels - mean) * mask, axis=(0, 1)) / ops.maximum(seen, 1.0)
        share, change = seen / ops.maximum(state["count"] + seen, 1.0), mean - state["mean"]
        spread = state["variance"] + (variance - state["variance"]) * share + ops.square(change) * share * (1 - share)
        new = {"mean": state["mean"] + change * share, "variance": spread, "count": state["count"] + seen}
        normal = ops.clip((pixels - state["mean"]) * ops.rsqrt(ops.maximum(state["variance"], 1e-2)), -5.0, 5.0)
        wanted = ops.relu(ops.matmul(normal, state["random"]))
        error = masked_mean(ops.mean(ops.square(outputs - wanted), axis=-1), batch["mask"])
        return error, {"seen": new["count"]}, new
