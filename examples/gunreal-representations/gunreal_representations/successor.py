"""Successor features: how bright will each cell of the frame be from now on? (Dayan 1993, Barreto et al. 2017)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask, n_step_returns


@dataclasses.dataclass(frozen=True)
class SuccessorFeatures(AuxiliaryTask):
    """Predicts the discounted sum of the brightness of each cell, for the policy that acts.

    Each is a general value function (Sutton et al. 2011), whose cumulant is the brightness after a step. The cumulants
    are multiplied by 1 - gamma, so that the sums are in the range of the brightness.

    Options:
      discount: discount factor gamma.
      cells: number of cells along each side of the frame.
    """

    name = "sf"
    weight: float = 0.1
    discount: float = 0.95
    cells: int = 8

    def check(self, spec):
        if not (spec.is_image and spec.dtype == "uint8" and min(spec.frame[1:]) >= self.cells):
            raise ValueError(f"it needs images of {self.cells}x{self.cells} pixels or more; choose fewer sf.cells")

    @staticmethod
    def bootstrap(outputs):
        return outputs[:, 0]

    def targets(self, replay, sequences, bootstraps):
        (first, length), t_max = sequences, replay.spec.t_max
        cumulants = (1 - self.discount) * self.brightness(replay.get("frame", first + 1, t_max), replay.xp)
        discounts = replay.discounts(first, t_max, self.discount)
        return {"sums": n_step_returns(cumulants, discounts, bootstraps, length)}

    def brightness(self, frames, xp):
        count, steps, channels, height, width = frames.shape
        rows, columns = height // self.cells, width // self.cells
        cropped = frames[..., : rows * self.cells, : columns * self.cells]
        pixels = xp.reshape(cropped, (count, steps, channels, self.cells, rows, self.cells, columns))
        means = xp.mean(xp.astype(pixels, xp.float32), axis=(2, 4, 6)) / 255
        return xp.reshape(means, (count, steps, self.cells**2))

    def head(self, spec):
        from keras import layers

        return layers.Dense(self.cells**2)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        return masked_mean(0.5 * ops.sum(ops.square(batch["sums"] - outputs), axis=-1), batch["mask"])
