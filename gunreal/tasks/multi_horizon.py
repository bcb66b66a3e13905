"""Values of several discounts: how much reward follows soon, and how much later? (Fedus et al. 2019)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.experience.replay import Replay
from gunreal.experience.returns import clip_rewards, n_step_returns
from gunreal.experience.sequences import Sequences
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask

_LEAST_DEVIATION = 0.1  # avoids learning from the noise of the values before there are rewards


@dataclasses.dataclass(frozen=True)
class MultiHorizon(AuxiliaryTask):
    """Regression of one value per discount on n-step returns of replayed sequences.

    Fedus et al. found that learning values of several discounts helps as an auxiliary task, also if the policy uses
    only one of them.

    Options:
      discounts: discount factors gamma of the values.
    """

    name = "mh"
    weight: float = 0.5
    discounts: tuple[float, ...] = (0.8, 0.95, 0.98, 0.995)

    def check(self, spec: Spec) -> None:
        if not self.discounts or not all(0 <= discount < 1 for discount in self.discounts):
            raise ValueError(f"mh.discounts is {list(self.discounts)}: choose one or more values from 0 to 1, below 1")

    @staticmethod
    def bootstrap(outputs: Any) -> Any:
        """The values of the state after the sequence, `[n, discounts]`."""
        return outputs[:, 0]

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """n-step returns of clipped rewards, one per discount: "returns" float32 `[N, t_max, discounts]`."""
        xp, spec, (first, length) = replay.xp, replay.spec, sequences
        rewards = clip_rewards(replay.get("reward", first, spec.t_max), spec.reward_clip)[..., None]
        discounts = replay.discounts(first, spec.t_max, 1.0)[..., None] * xp.asarray(self.discounts, dtype=xp.float32)
        rewards = xp.broadcast_to(rewards, discounts.shape)
        return {"returns": n_step_returns(rewards, discounts, bootstraps, length)}

    def head(self, spec: Spec) -> Any:
        """A layer for the values `[B, T, discounts]`."""
        from keras import layers

        return layers.Dense(len(self.discounts), name="mh")

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean of `0.5 ((R_t - V(s_t)) / deviation)^2` over steps and discounts.

        The deviation is the standard deviation of the batch's returns of the same discount, or a tenth of their mean if
        that is larger, and at least 0.1.
        """
        from keras import ops

        from gunreal.learning.losses import masked_mean

        returns, mask = batch["returns"], batch["mask"][:, :, None]
        count = ops.maximum(ops.sum(mask), 1.0)
        mean = ops.sum(returns * mask, axis=(0, 1)) / count
        variance = ops.sum(ops.square(returns - mean) * mask, axis=(0, 1)) / count
        # Without a relative bound, returns far from 0 that hardly differ would dominate the losses of all other parts.
        least = _LEAST_DEVIATION**2 * ops.maximum(ops.square(mean), 1.0)
        error = ops.square(returns - outputs) / ops.maximum(variance, least)
        return masked_mean(0.5 * ops.mean(error, axis=-1), batch["mask"])
