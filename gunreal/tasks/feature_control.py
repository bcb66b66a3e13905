"""Feature control: learn, for every unit of a hidden layer, to act so that it is most active (UNREAL section 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import TERMINATED, Replay
from gunreal.experience.spec import Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence

REWARDS = ("activation", "change")


@dataclasses.dataclass(frozen=True)
class FeatureControl(AuxiliaryTask):
    """n-step Q-learning of the torso's own last layer, one Q function per unit.

    A unit's pseudo-reward is its activation in the state that a step led to ("maximally activating each of the units"
    of a hidden layer is UNREAL's task), or the absolute change of it, as that of a pixel is in pixel control. It is
    relative to the layer's root mean square: with plain activations, larger features make larger returns, for which Q
    asks for larger features again (on the ViZDoom maze the loss grew from 3 to 900 in 75 updates). And it is multiplied
    by 1 - gamma, so that returns are of its own size.

    The network computes the pseudo-rewards: no agent has to store features, which would be outdated soon. Only those of
    the state behind a sequence come from the prediction queue, with the bootstrap, a few updates older than the rest.
    For these to be of the same episode, a sequence ends with it.

    Options:
      discount: gamma of the pseudo-rewards.
      reward: "activation" or "change".
    """

    name = "fc"
    weight: float = 0.1
    discount: float = 0.9
    reward: str = "activation"

    def check(self, spec: Spec) -> None:
        if not 0 <= self.discount < 1:
            raise ValueError(f"fc.discount is {self.discount}: choose one from 0 to 1, below 1")
        if self.reward not in REWARDS:
            raise ValueError(f"fc.reward is {self.reward!r}: choose {' or '.join(REWARDS)}")

    @staticmethod
    def bootstrap(outputs: Mapping[str, Any]) -> Any:
        """`max_a Q(s, a)` and the activation of every unit, `[n, 2, U]`, of the state behind the sequence."""
        from keras import ops

        return ops.stack([ops.max(outputs["q"][:, 0], axis=1), outputs["features"][:, 0]], axis=1)

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        """A uniform sequence, cut off at the end of its episode."""
        sequence = uniform_sequence(replay, rng)
        if sequence is None:
            return None
        (ends,) = np.nonzero(replay.get("flags", *sequence) & TERMINATED)
        return ReplaySequence(sequence.first, int(ends[0]) + 1) if len(ends) else sequence

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """What the returns are made of in `loss`, where the features are.

        Returns:
          "action" int32 `[t_max]`; "tail" float32 `[t_max]`, the discount from each step to the state behind the
          sequence, 0 where the episode terminated; that state's "value" and "features" float32 `[U]`.
        """
        assert bootstrap is not None
        first, length = sequence
        t_max = replay.spec.t_max
        discounts = replay.discounts(first, length, self.discount)
        tail = np.cumprod(discounts[::-1])[::-1]
        value, features = bootstrap
        action = pad(replay.get("action", first, length), t_max)
        return {"action": action, "tail": pad(tail, t_max), "value": value, "features": features}

    def head(self, spec: Spec) -> Any:
        """The "q" `[B, T, A, U]` and "features" `[B, T, U]`; see `DuelingUnits`."""
        from gunreal.tasks.feature_control_head import DuelingUnits

        return DuelingUnits(spec.num_actions, name="fc")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean over the steps and the units of `0.5 (R_t - Q(s_t, a_t))^2`."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        q = outputs["q"]
        taken = ops.one_hot(batch["action"], q.shape[2], dtype=q.dtype)
        q_t = ops.einsum("btau,bta->btu", q, taken)
        error = ops.square(self.returns(outputs["features"], batch) - q_t)
        return masked_mean(0.5 * ops.mean(error, axis=-1), batch["mask"])

    def returns(self, features: Any, batch: Mapping[str, Any]) -> Any:
        """`R_t = (1 - gamma) r_{t+1} + gamma_t R_{t+1}` of every unit, `[B, T, U]`; 0 behind a sequence's end.

        A sequence is of one episode, so that between its steps the discount is always gamma: one product with the
        matrix of gamma's powers.
        """
        from keras import ops

        mask = ops.expand_dims(batch["mask"], -1)
        goes_on = ops.concatenate([mask[:, 1:], ops.zeros_like(mask[:, :1])], axis=1)
        following = ops.concatenate([features[:, 1:], features[:, :1]], axis=1)
        following = goes_on * following + (1 - goes_on) * ops.expand_dims(batch["features"], 1)
        rewards = mask * (ops.abs(following - features) if self.reward == "change" else following)
        rewards = (1 - self.discount) * rewards
        steps = np.arange(features.shape[1])
        powers = np.triu(self.discount ** np.maximum(steps - steps[:, None], 0)).astype(np.float32)
        tail = ops.expand_dims(batch["tail"], -1) * ops.expand_dims(batch["value"], 1)
        return ops.einsum("tk,bku->btu", powers, rewards) + tail
