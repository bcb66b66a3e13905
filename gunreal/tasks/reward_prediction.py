"""Reward prediction: will the reward after three frames be zero, positive or negative? (GUNREAL section 2.2)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.experience.replay import RESET, Replay
from gunreal.experience.spec import Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence

if TYPE_CHECKING:
    from gunreal.tasks.batched import BatchReplay, Sequences

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

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        """Samples three steps of one episode.

        The last one has a nonzero reward with probability 0.5, if the ring contains both kinds.
        """
        first = replay.oldest + FRAMES - 1  # the first step that may be the third of a sequence
        count = replay.end - first
        if count <= 0:
            return None
        third = (replay.get("age", first, count) >= FRAMES - 1) & (replay.get("flags", first, count) & RESET == 0)
        rewarding = replay.get("reward", first, count) != 0
        wanted = third & (rewarding if rng.random() < 0.5 else ~rewarding)
        (choices,) = np.nonzero(wanted)
        if len(choices) == 0:
            (choices,) = np.nonzero(third)
        if len(choices) == 0:
            return None
        return ReplaySequence(first + int(rng.choice(choices)) - (FRAMES - 1), FRAMES)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """The sign of the reward after the third frame: "class" int32 `[]`, 0 zero, 1 positive, 2 negative."""
        reward = replay.get("reward", sequence.first + FRAMES - 1, 1)[0]
        return {"class": np.array(POSITIVE if reward > 0 else NEGATIVE if reward < 0 else ZERO, np.int32)}

    def sample_batch(self, replay: BatchReplay, draws: Any) -> Sequences:
        from keras import ops

        from gunreal.tasks.batched import Sequences, choose, has

        third = (replay.window("age") >= FRAMES - 1) & ~has(replay.window("flags"), RESET)
        third = third & (replay.steps >= replay.oldest + FRAMES - 1)[None]
        rewarding = replay.window("reward") != 0
        wanted = third & (rewarding == (draws[:, :1] < 0.5))
        index, found = choose(wanted, draws[:, 1])
        any_index, any_found = choose(third, draws[:, 1])
        last = replay.end - replay.size + ops.where(found, index, any_index)
        return Sequences(last - (FRAMES - 1), FRAMES * ops.cast(any_found, "int32"))

    def targets_batch(self, replay: BatchReplay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        from keras import ops

        reward = replay.get("reward", sequences.first + FRAMES - 1, 1)[:, 0]
        kind = ops.where(reward > 0, POSITIVE, ops.where(reward < 0, NEGATIVE, ZERO))
        return {"class": ops.cast(kind, "int32")}

    def head(self, spec: Spec) -> Any:
        """A layer for the logits `[B, 3]` of the three frames' concatenated features, with 128 hidden units."""
        from keras import Sequential, layers

        return Sequential([layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(3)], name="rp")

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean cross-entropy over the agents that have a sequence."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = ops.sparse_categorical_crossentropy(batch["class"], outputs, from_logits=True)
        return masked_mean(error, batch["mask"][:, -1])
