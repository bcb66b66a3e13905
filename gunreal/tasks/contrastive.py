"""Contrastive prediction: given what one will do, which of many frames will be seen? (CPC|A, Guo et al. 2018)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import Replay
from gunreal.experience.spec import Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence


@dataclasses.dataclass(frozen=True)
class Contrastive(AuxiliaryTask):
    """Action-conditional contrastive predictive coding.

    From the torso's last layer, the agent's belief, a GRU rolls forward along the actions that were taken. Each of its
    states has to tell the frame that was then seen from all other frames of the batch: those of other agents, and those
    of other moments of its own sequence.

    Why this one: Guo et al. found that predictions over several steps, conditioned on actions, are what makes a belief
    accurate in visually complex mazes. Embodied navigation has kept it since: Ye et al. 2020 (PointGoal) train with
    five of them, 1 to 16 steps ahead, and two other tasks, which takes SPL from 0.56 to 0.68 at 40 million frames; Ye
    et al. 2021 (ObjectGoal) keep two of them among six tasks. It needs no depth, pose, reward or decoder.

    It differs from theirs in that the negatives are all other frames of the batch (the loss of van den Oord et al.
    2018, eq. 4), not a drawn one: more of them, and nothing left to chance. A stack of four frames shares some with the
    three observations that follow, which are easy to tell therefore: let `steps` be above the stack.

    Options:
      weight: as strong as Ye et al.'s 0.1, whose loss starts at 2 ln 2 where this one starts at the logarithm of the
        number of frames, 4.4 for 80.
      steps: how many steps ahead is predicted, at most.
      units: of the GRU, and size of the embeddings that are compared.
    """

    name = "cpc"
    features = "both"
    weight: float = 0.03
    steps: int = 8
    units: int = 128

    def check(self, spec: Spec) -> None:
        if spec.t_max < 2:
            raise ValueError("cpc predicts later steps of a sequence: raise t_max to 2 or more")
        if not 1 <= self.steps < spec.t_max:
            raise ValueError(f"cpc.steps is {self.steps}: choose one from 1 to {spec.t_max - 1}, below t_max")
        if self.units < 1:
            raise ValueError(f"cpc.units is {self.units}: choose 1 or more")

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        return uniform_sequence(replay, rng)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """The actions that the predictions are conditioned on: "action" int32 `[t_max]`."""
        return {"action": pad(replay.get("action", *sequence), replay.spec.t_max)}

    def head(self, spec: Spec) -> Any:
        """The "frames" and "predictions"; see `ActionConditionedPredictor`."""
        from gunreal.tasks.contrastive_head import ActionConditionedPredictor

        return ActionConditionedPredictor(spec.num_actions, self.steps, self.units, name="cpc")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Cross-entropy of the frame that was seen among all frames of the batch; the mean over all predictions.

        A prediction counts where all steps from its first to the one that it predicts do: episodes are kept apart by a
        masked row. Without any knowledge the loss is the logarithm of the number of frames.
        """
        from keras import ops

        frames, mask = outputs["frames"], batch["mask"]
        candidates = ops.reshape(frames, (-1, frames.shape[-1]))
        absent = (ops.reshape(mask, (-1,)) - 1) * 1e9
        total, count = 0.0, 0.0
        counts = mask
        for ahead, predictions in enumerate(outputs["predictions"], 1):
            counts = counts[:, :-1] * mask[:, ahead:]
            scores = ops.matmul(predictions, ops.transpose(candidates)) + absent
            score = ops.sum(predictions * frames[:, ahead:], axis=-1)
            total += ops.sum(counts * (ops.logsumexp(scores, axis=-1) - score))
            count += ops.sum(counts)
        return total / ops.maximum(count, 1.0)
