"""Value replay whose gradient must not point against that of the actor-critic (Du et al. 2018)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks.value_replay import ValueReplay


@dataclasses.dataclass(frozen=True)
class GatedValueReplay(ValueReplay):
    """Value replay that leaves the torso alone while the cosine of both gradients is not positive."""

    name = "vr_gated"

    def gate(self, cosine, norm, base_norm):
        from keras import ops

        return ops.cast(cosine > 0, "float32")
