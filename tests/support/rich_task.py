"""Tasks that use all that a task may ask for, to test that runs repeat them exactly."""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, prioritized_sequences
from gunreal.tasks.value_replay import ValueReplay


@dataclasses.dataclass(frozen=True)
class Rich(AuxiliaryTask):
    """Predicts averaged features of a view from those of another one. The error is divided by its running mean."""

    name = "rich"
    average = 0.1
    rate = 0.5
    max_grad_norm = 1.0
    prioritized = True
    replays = 2

    def sample(self, replay, draws):
        return prioritized_sequences(replay, draws, self.name)

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
                if batch is None:
                    return self.project(x)
                views = ops.where(net.draws(1, 1, 1, 1) < 0.5, ops.flip(net.observations, axis=-1), net.observations)
                wanted = net.average.head(net.average.features(views)) + net.state["shift"]
                return {"found": self.project(net.features(views)), "wanted": wanted}

        return Views()

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        known = batch["state"]["mean"]
        error = masked_mean(ops.mean(ops.square(outputs["found"] - outputs["wanted"]), axis=-1), batch["mask"])
        some = ops.max(batch["mask"])
        metrics = {"mean": known, "priority": ops.mean(ops.abs(outputs["found"]), axis=(1, 2))}
        return error / known, metrics, {"mean": known + 0.1 * some * (error - known)}


class Prioritized(ValueReplay):
    """Value replay by priority."""

    prioritized = True

    def sample(self, replay, draws):
        return prioritized_sequences(replay, draws, self.name, 1.0)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        error = (batch["returns"] - outputs["value"]) / outputs["scale"]
        return masked_mean(batch["weight"][:, None] * ops.square(error), batch["mask"]), {"priority": ops.abs(error)}
