"""The weight of a loss, learned as the uncertainty of what the task predicts (Kendall, Gal and Cipolla 2018)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks.reward_prediction import RewardPrediction


class Uncertain:
    """Weighs the loss of a task, which must have a head and no bootstrap: `class MyUncertain(Uncertain, MyTask)`.

    The loss `L`, a negative log-likelihood, becomes `exp(-s) L + s / 2`, with the trained logarithm of a variance `s`.
    The loss of the actor-critic is no likelihood, and keeps its weight of 1.
    """

    def head(self, spec):
        import inspect

        from keras import layers, ops

        class Weighed(layers.Layer):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.asked = inner, inspect.signature(inner.call).parameters

            def build(self, shape):
                self.log_variance = self.add_weight((), "zeros", autocast=False, name="log_variance")

            def call(self, x, batch=None, net=None):
                given = {"batch": batch, "net": net}
                outputs = self.inner(x, **{name: given[name] for name in given if name in self.asked})
                return {"outputs": outputs, "log_variance": ops.convert_to_tensor(self.log_variance)}

        return Weighed(super().head(spec))

    def loss(self, outputs, batch):
        from keras import ops

        found, weight = super().loss(outputs["outputs"], batch), ops.exp(-outputs["log_variance"])
        loss, metrics, *state = found if isinstance(found, tuple) else (found, {})
        return weight * loss + outputs["log_variance"] / 2, {**metrics, "weight": weight}, *state

    def show(self, outputs, length):
        return super().show(outputs["outputs"], length)


@dataclasses.dataclass(frozen=True)
class UncertainRewardPrediction(Uncertain, RewardPrediction):
    """Reward prediction with a learned weight."""

    name = "rp_uncertain"
    weight: float = 1.0
