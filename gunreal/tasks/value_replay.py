"""Value function replay: the critic learns from replayed sequences as well (GUNREAL section 2.2, algorithm 6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import Replay
from gunreal.experience.returns import clip_rewards, n_step_returns
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence


@dataclasses.dataclass(frozen=True)
class ValueReplay(AuxiliaryTask):
    """Regresses the actor-critic's value on the n-step returns of replayed sequences. It adds no layers."""

    name = "vr"

    @staticmethod
    def bootstrap(outputs: Mapping[str, Any]) -> Any:
        """`V(s)`, `[n]`, of the state behind the sequence."""
        return outputs["value"][:, 0]

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        return uniform_sequence(replay, rng)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """`R_t = r_{t+1} + gamma_t R_{t+1}` of clipped rewards: "returns" float32 `[t_max]`."""
        assert bootstrap is not None
        spec = replay.spec
        rewards = clip_rewards(replay.get("reward", *sequence), spec.reward_clip)
        discounts = replay.discounts(*sequence, spec.discount)
        return {"returns": pad(n_step_returns(rewards, discounts, bootstrap), spec.t_max)}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean over the steps of `0.5 ((R_t - V(s_t)) / scale)^2`, as in the actor-critic's own value loss."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = (batch["returns"] - outputs["value"]) / outputs["scale"]
        return masked_mean(0.5 * ops.square(error), batch["mask"])
