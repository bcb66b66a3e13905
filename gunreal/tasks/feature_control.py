"""Feature control: learn to maximize the activation of every unit of a hidden layer (UNREAL section 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import option
from gunreal.experience.replay import TERMINATED, Replay, steps_until
from gunreal.experience.returns import n_step_returns
from gunreal.experience.sequences import Sequences, pad, uniform_sequences
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask

REWARDS = ("activation", "change")


@dataclasses.dataclass(frozen=True)
class FeatureControl(AuxiliaryTask):
    """n-step Q-learning on the torso's own last layer, with one Q function per unit.

    A unit's pseudo-reward is its activation in the state that a step led to. UNREAL describes this as "maximally
    activating each of the units" of a hidden layer. The alternative is the absolute change of the activation, as in
    pixel control.

    Pseudo-rewards are divided by the root mean square of the layer. With plain activations, larger features give
    larger returns, and learning these returns makes the features larger again. On the ViZDoom maze the loss then grew
    from 3 to 900 in 75 updates. Pseudo-rewards are also multiplied by 1 - gamma, which keeps returns in the same range.

    The network computes the pseudo-rewards from the batch, so agents do not store features that would soon be
    outdated. Only the features of the state after a sequence come from the prediction queue, together with the
    bootstrap. They are a few updates older than the rest. A sequence stops at the end of its episode, so that these
    features belong to the same episode.

    Options:
      discount: discount factor gamma of the pseudo-rewards.
      reward: pseudo-reward, "activation" or "change".
    """

    name = "fc"
    weight: float = 0.1
    discount: float = option(0.9, low=0, below=1)
    reward: str = option("activation", choices=REWARDS)

    @staticmethod
    def bootstrap(outputs: Mapping[str, Any]) -> Any:
        """`max_a Q(s, a)` and the activation of every unit in the state after the sequence, `[n, 2, U]`."""
        from keras import ops

        return ops.stack([ops.max(outputs["q"][:, 0], axis=1), outputs["features"][:, 0]], axis=1)

    def sample(self, replay: Replay, draws: Any) -> Sequences:
        """Uniformly drawn sequences, cut at the end of their episodes."""
        first, length = uniform_sequences(replay, draws)
        until = steps_until(replay.get("flags", first, replay.spec.t_max) & TERMINATED != 0)
        return Sequences(first, replay.xp.minimum(length, until))

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """The parts of the returns that do not depend on the batch's features. `loss` adds the rest.

        Returns:
          "action" int32 `[N, t_max]`.
          "tail" float32 `[N, t_max]`, the discount from each step to the state after the sequence, 0 if the episode
          terminated.
          "value" and "features" float32 `[N, U]`, of the state after the sequence.
        """
        xp, (first, length), t_max = replay.xp, sequences, replay.spec.t_max
        discounts = replay.discounts(first, t_max, self.discount)
        # The return of no rewards, with 1 for the state after the sequence.
        tail = n_step_returns(xp.zeros_like(discounts), discounts, xp.ones_like(discounts[:, 0]), length)
        action = pad(replay.get("action", first, t_max), length)
        return {"action": action, "tail": tail, "value": bootstraps[:, 0], "features": bootstraps[:, 1]}

    def head(self, spec: Spec) -> Any:
        """A layer with outputs "q" `[B, T, A, U]` and "features" `[B, T, U]`. See `DuelingUnits`."""
        from gunreal.tasks.feature_control_head import DuelingUnits

        return DuelingUnits(spec.num_actions, name="fc")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean of `0.5 (R_t - Q(s_t, a_t))^2` over steps and units."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        q = outputs["q"]
        taken = ops.one_hot(batch["action"], q.shape[2], dtype=q.dtype)
        q_t = ops.einsum("btau,bta->btu", q, taken)
        error = ops.square(self.returns(outputs["features"], batch) - q_t)
        return masked_mean(0.5 * ops.mean(error, axis=-1), batch["mask"])

    def returns(self, features: Any, batch: Mapping[str, Any]) -> Any:
        """`R_t = (1 - gamma) r_{t+1} + gamma_t R_{t+1}` of every unit, `[B, T, U]`. It is 0 after a sequence's end.

        A sequence lies in one episode, so the discount between its steps is always gamma. The returns are therefore
        one product with a matrix of powers of gamma.
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
