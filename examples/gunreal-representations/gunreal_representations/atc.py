"""ATC: which shifted view shows what follows a few steps later? (Stooke et al. 2021)"""

from __future__ import annotations

import dataclasses

from gunreal_representations.views import OfViews, contrast, shifted


@dataclasses.dataclass(frozen=True)
class Atc(OfViews):
    """Contrasts predictions from a view of each observation with averaged codes of views of later ones.

    Options:
      ahead: number of steps between both observations.
    """

    name = "atc"
    weight: float = 0.1
    average: float = 0.01
    ahead: int = 3
    units: int = 128

    def check(self, spec):
        super().check(spec)
        if not 1 <= self.ahead < spec.t_max:
            raise ValueError(f"atc.ahead is {self.ahead}: choose 1 to {spec.t_max - 1}, below t_max")

    def head(self, spec):
        from keras import Sequential, layers, ops

        class Codes(layers.Layer):
            def __init__(self, task):
                super().__init__()
                self.task, self.compress = task, layers.Dense(task.units)
                self.residual = Sequential([layers.Dense(4 * task.units, activation="relu"), layers.Dense(task.units)])

            def build(self, shape):
                self.compress.build(shape)
                self.residual.build((*shape[:-1], self.task.units))
                self.bilinear = self.add_weight((self.task.units, self.task.units), name="bilinear")

            def call(self, x, batch=None, net=None):
                if net is None:
                    return self.compress(x)
                now, later = (shifted(net, self.task.shift) for _ in range(2))
                codes = self.compress(net.features(now))[:, : -self.task.ahead]
                queries = ops.matmul(codes + self.residual(codes), self.bilinear)
                return {"queries": queries, "keys": net.average.head(net.average.features(later))[:, self.task.ahead :]}

        return Codes(self)

    def loss(self, outputs, batch):
        from gunreal.tasks import masks_ahead

        return contrast(outputs["queries"], outputs["keys"], masks_ahead(batch["mask"], self.ahead)[-1])
