"""SPR: what will the averaged features of a shifted view be, a few actions later? (Schwarzer et al. 2021)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import pad
from gunreal_representations.views import OfViews, shifted


@dataclasses.dataclass(frozen=True)
class Spr(OfViews):
    """Rolls a transition model forward from one view, and compares it with averaged projections of another one."""

    name = "spr_averaged"
    weight: float = 0.5
    average: float = 0.01
    replays: int = 1
    updates: int = 1
    steps: int = 5
    units: int = 128

    def check(self, spec):
        super().check(spec)
        if not 1 <= self.steps < spec.t_max:
            raise ValueError(f"{self.name}.steps is {self.steps}: choose 1 to {spec.t_max - 1}, below t_max")

    def targets(self, replay, sequences, bootstraps):
        return {"action": pad(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def head(self, spec):
        from keras import layers, ops

        class Transition(layers.Layer):
            def __init__(self, task):
                super().__init__()
                self.task, self.project = task, layers.Dense(task.units, name="project")
                self.predict = layers.Dense(task.units, name="predict")

            def build(self, shape):
                self.step = layers.Dense(shape[-1], activation="relu", name="step")
                self.step.build((*shape[:-1], shape[-1] + spec.num_actions))
                self.project.build(shape)
                self.predict.build((*shape[:-1], self.task.units))

            def call(self, x, batch=None, net=None):
                if net is None:
                    return self.project(x)
                views = [shifted(net, self.task.shift) for _ in range(2)]
                actions = ops.one_hot(batch["action"], spec.num_actions, dtype=x.dtype)
                state, predictions = net.features(views[0]), []
                for ahead in range(1, self.task.steps + 1):
                    state = self.step(ops.concatenate([state[:, :-1], actions[:, ahead - 1 : -1]], axis=-1))
                    predictions.append(self.predict(self.project(state)))
                return {"targets": net.average.head(net.average.features(views[1])), "predictions": predictions}

        return Transition(self)

    def loss(self, outputs, batch):
        from keras import ops

        targets = outputs["targets"]
        deviation = ops.mean(ops.std(ops.normalize(targets, axis=-1), axis=(0, 1)))  # 0 if the features have collapsed
        return -mean_cosine(targets, outputs["predictions"], batch["mask"]), {"deviation": deviation}


def mean_cosine(targets, predictions, mask):
    """The mean cosine of targets `[B, T, F]` and of predictions 1, 2, ... steps ahead, `[B, T - ahead, F]` each.

    It is that of the predictions that stay in an episode.
    """
    from keras import ops

    from gunreal.tasks import mean_ahead

    targets, found = ops.normalize(targets, axis=-1), enumerate(predictions, 1)
    return mean_ahead([ops.sum(ops.normalize(x, axis=-1) * targets[:, ahead:], axis=-1) for ahead, x in found], mask)
