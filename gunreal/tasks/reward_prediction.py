"""Reward prediction: will the reward after three frames be zero, positive or negative? (GUNREAL section 2.2)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import RESET, Replay
from gunreal.experience.sequences import Sequences, choose
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask

FRAMES = 3
ZERO, POSITIVE, NEGATIVE = range(3)


@dataclasses.dataclass(frozen=True)
class RewardPrediction(AuxiliaryTask):
    """Classifies the reward that follows three successive observations. Half of the samples have a nonzero reward.

    The head sees the convolution features only, so the task trains the convolutions and not the torso's last layer.
    UNREAL adds one such loss with weight 1 to a rollout's summed A3C loss. With means over steps instead of sums, this
    corresponds to a weight of 1 / t_max.
    """

    name = "rp"
    features = "conv"
    weight: float = 0.05

    def length(self, t_max: int) -> int:
        return FRAMES

    def sample(self, replay: Replay, draws: Any) -> Sequences:
        """Draws three steps of one episode.

        The last one has a nonzero reward with probability 0.5, if the replay contains both kinds.
        """
        xp = replay.xp
        third = (replay.window("age") >= FRAMES - 1) & (replay.window("flags") & RESET == 0)
        third = third & (replay.steps >= replay.oldest + FRAMES - 1)[None]
        rewarding = replay.window("reward") != 0
        wanted, found = choose(third & (rewarding == (draws[:, :1] < 0.5)), draws[:, 1])
        any_third, any_found = choose(third, draws[:, 1])
        last = replay.end - replay.size + xp.where(found, wanted, any_third)
        return Sequences(last - (FRAMES - 1), xp.where(any_found, FRAMES, 0))

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """The sign of the reward after the third frame: "class" int32 `[N]`, 0 zero, 1 positive, 2 negative."""
        reward, xp = replay.get("reward", sequences.first, FRAMES)[:, -1], replay.xp
        kind = xp.where(reward > 0, POSITIVE, xp.where(reward < 0, NEGATIVE, ZERO))
        return {"class": xp.astype(kind, xp.int32)}

    def head(self, spec: Spec) -> Any:
        """A layer for the logits `[B, 3]` of the three frames' concatenated features, with 128 hidden units."""
        from keras import Sequential, layers

        return Sequential([layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(3)], name="rp")

    def show(self, outputs: Any, length: int) -> dict[str, Any]:
        """The probability of each class."""
        odds = np.exp(outputs - outputs.max())
        return {"next reward": dict(zip(("zero", "positive", "negative"), odds / odds.sum(), strict=True))}

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean cross-entropy over the agents that have a sequence."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = ops.sparse_categorical_crossentropy(batch["class"], outputs, from_logits=True)
        return masked_mean(error, batch["mask"][:, -1])
