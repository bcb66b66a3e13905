"""Value replay of the sequences with the largest errors (prioritized experience replay, Schaul et al. 2016)."""

from __future__ import annotations

import dataclasses

from gunreal.tasks import prioritized_sequences
from gunreal.tasks.value_replay import ValueReplay


@dataclasses.dataclass(frozen=True)
class PrioritizedValueReplay(ValueReplay):
    """The task `vr` with proportional priorities. The weights correct the loss in full at the end of the run.

    Options:
      exponent: exponent of the priorities, alpha in the paper. 0 draws uniformly.
      correction: exponent of the importance weights at the start, beta in the paper. It grows to 1.
    """

    name = "vr_prioritized"
    prioritized = True
    exponent: float = 0.6
    correction: float = 0.4

    def sample(self, replay, draws):
        return prioritized_sequences(replay, draws, self.name, self.exponent)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        error = (batch["returns"] - outputs["value"]) / outputs["scale"]
        weight = batch["weight"] ** (self.correction + (1 - self.correction) * batch["progress"])
        weight = weight / ops.maximum(ops.max(weight), 1e-9)
        loss = masked_mean(weight[:, None] * 0.5 * ops.square(error), batch["mask"])
        return loss, {"priority": ops.abs(error)}
