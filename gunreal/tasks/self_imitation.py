"""Self-imitation: repeat what went better than expected (Oh et al. 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.config.plugins import option
from gunreal.experience.replay import Replay
from gunreal.experience.sequences import Sequences, pad
from gunreal.tasks.value_replay import ValueReplay


@dataclasses.dataclass(frozen=True)
class SelfImitation(ValueReplay):
    """Raises the probability of replayed actions whose return exceeded the value. It adds no layers.

    Oh et al. compare the value with the return of the whole episode, and sample steps with large advantages more often.
    This task uses n-step returns of uniformly sampled sequences. They are also lower bounds of the optimal value (Tang
    2020), and do not need episodes that have ended.

    Options:
      weight: weight of the loss.
      value_weight: weight of the value's part of the loss, beta in the paper.
    """

    name = "sil"
    weight: float = 0.1
    value_weight: float = option(0.01, low=0)

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """The "returns" of value replay, and "action" int32 `[N, t_max]`."""
        action = replay.get("action", sequences.first, replay.spec.t_max)
        return {**super().targets(replay, sequences, bootstraps), "action": pad(action, sequences.length)}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean of `-log pi(a_t|s_t) (R_t - V(s_t))+ + beta 0.5 (R_t - V(s_t))+^2` over steps (Oh et al., eq. 1 to 3).

        Returns and values are divided by the standard deviation of the returns.
        """
        from keras import ops

        from gunreal.learning.losses import log_probability, masked_mean

        gain = ops.relu(batch["returns"] - outputs["value"]) / outputs["scale"]
        policy = -log_probability(outputs["logits"], batch["action"]) * ops.stop_gradient(gain)
        return masked_mean(policy + self.value_weight * 0.5 * ops.square(gain), batch["mask"])
