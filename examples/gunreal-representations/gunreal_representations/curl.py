"""CURL: which of two shifted views show the same observation? (Laskin, Srinivas and Abbeel 2020)"""

from __future__ import annotations

import dataclasses

from gunreal_representations.views import OfViews, contrast, shifted


@dataclasses.dataclass(frozen=True)
class Curl(OfViews):
    """Contrasts a view of each observation with averaged codes of other views, of this one and of all others."""

    name = "curl"
    weight: float = 0.1
    average: float = 0.001
    units: int = 128

    def head(self, spec):
        from keras import layers, ops

        class Codes(layers.Layer):
            def __init__(self, task):
                super().__init__()
                self.task, self.encode = task, layers.Dense(task.units, name="encode")

            def build(self, shape):
                self.encode.build(shape)
                self.bilinear = self.add_weight((self.task.units, self.task.units), name="bilinear")

            def call(self, x, batch=None, net=None):
                if net is None:
                    return self.encode(x)
                query, key = (shifted(net, self.task.shift) for _ in range(2))
                queries = ops.matmul(self.encode(net.features(query)), self.bilinear)
                return {"queries": queries, "keys": net.average.head(net.average.features(key))}

        return Codes(self)

    def loss(self, outputs, batch):
        return contrast(outputs["queries"], outputs["keys"], batch["mask"])
