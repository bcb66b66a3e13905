"""Value function replay: the critic also learns from replayed sequences (GUNREAL section 2.2, algorithm 6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.experience.replay import Replay
from gunreal.experience.returns import n_step_returns
from gunreal.experience.sequences import Sequences
from gunreal.learning.task import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class ValueReplay(AuxiliaryTask):
    """Regression of the actor-critic's value on n-step returns of replayed sequences. It adds no layers."""

    name = "vr"

    @staticmethod
    def bootstrap(outputs: Mapping[str, Any]) -> Any:
        """`V(s)` of the state after the sequence, `[n]`."""
        return outputs["value"][:, 0]

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """n-step returns of `replay.rewards`, `R_t = r_{t+1} + gamma_t R_{t+1}`: "returns" float32 `[N, t_max]`."""
        spec, (first, length) = replay.spec, sequences
        discounts = replay.discounts(first, spec.t_max, spec.discount)
        return {"returns": n_step_returns(replay.rewards(first, spec.t_max), discounts, bootstraps, length)}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean of `0.5 ((R_t - V(s_t)) / scale)^2` over steps, like the actor-critic's own value loss."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = (batch["returns"] - outputs["value"]) / outputs["scale"]
        return masked_mean(0.5 * ops.square(error), batch["mask"])
