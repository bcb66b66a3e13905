"""A task that uses all that a task may ask for, to test that runs repeat it exactly."""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class Rich(AuxiliaryTask):
    """Predicts averaged features of a view from those of another one. The error is divided by its running mean."""

    name = "rich"
    average = 0.1
    rate = 0.5
    max_grad_norm = 1.0

    def targets(self, replay, sequences, bootstraps):
        return {}

    def state(self, spec):
        from keras import initializers

        return {"mean": initializers.Ones()(()), "shift": initializers.RandomUniform()((8,))}

    def bonus(self, outputs, observations, state):
        return 0.1 * outputs[:, 0, 0] + state["shift"][0]

    def gate(self, cosine, norm, base_norm):
        from keras import ops

        return ops.minimum(1.0, base_norm / ops.maximum(norm, 1e-6))

    def head(self, spec):
        from keras import layers, ops

        class Views(layers.Layer):
            def __init__(self):
                super().__init__()
                self.project = layers.Dense(8, name="project")

            def build(self, shape):
                self.project.build(shape)

            def call(self, x, batch=None, net=None):
                if net is None:
                    return self.project(x)
                views = ops.where(net.draws(1, 1, 1, 1) < 0.5, ops.flip(net.observations, axis=-1), net.observations)
                wanted = net.average.head(net.average.features(views)) + batch["state"]["shift"]
                return {"found": self.project(net.features(views)), "wanted": wanted}

        return Views()

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        known = batch["state"]["mean"]
        error = masked_mean(ops.mean(ops.square(outputs["found"] - outputs["wanted"]), axis=-1), batch["mask"])
        some = ops.max(batch["mask"])
        return error / known, {"mean": known}, {"mean": known + 0.1 * some * (error - known)}
