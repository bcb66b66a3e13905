"""Contrastive prediction: which of many frames follows a given sequence of actions? (CPC|A, Guo et al. 2018)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.experience.replay import Replay
from gunreal.experience.spec import Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence

if TYPE_CHECKING:
    from gunreal.tasks.batched import BatchReplay, Sequences


@dataclasses.dataclass(frozen=True)
class Contrastive(AuxiliaryTask):
    """Action-conditional contrastive predictive coding.

    A GRU starts from the torso's last layer and rolls forward along the actions taken. Each of its states must
    identify the frame seen at that step among all frames of the batch. The other frames come from other agents and
    from other steps of the same sequence.

    Guo et al. found that action-conditional predictions over several steps give accurate beliefs in visually complex
    mazes. Embodied navigation also uses this task. Ye et al. 2020 (PointGoal) train with five of these tasks, 1 to 16
    steps ahead, and two others, which raises SPL from 0.56 to 0.68 at 40 million frames. Ye et al. 2021 (ObjectGoal)
    use two of these tasks among six. The task needs no depth, pose, reward or decoder.

    Unlike in Guo et al., the negatives are all other frames of the batch (the loss of van den Oord et al. 2018, eq. 4)
    instead of one sampled frame. This gives more negatives and needs no sampling. A stack of four frames overlaps the
    next three observations, which are therefore easy to identify. Choose `steps` larger than the stack.

    Options:
      weight: weight of the loss. The default matches the 0.1 of Ye et al., whose loss starts at 2 ln 2. This loss
        starts at the logarithm of the number of frames, 4.4 for 80 frames.
      steps: maximum number of steps ahead to predict.
      units: number of GRU units, and size of the compared embeddings.
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
            raise ValueError(f"cpc.steps is {self.steps}: choose a value from 1 to {spec.t_max - 1}, below t_max")
        if self.units < 1:
            raise ValueError(f"cpc.units is {self.units}: choose 1 or more")

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        return uniform_sequence(replay, rng)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """The actions to condition the predictions on: "action" int32 `[t_max]`."""
        return {"action": pad(replay.get("action", *sequence), replay.spec.t_max)}

    def sample_batch(self, replay: BatchReplay, draws: Any) -> Sequences:
        from gunreal.tasks.batched import uniform_sequences

        return uniform_sequences(replay, draws)

    def targets_batch(self, replay: BatchReplay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        from gunreal.tasks.batched import pad_batch

        return {"action": pad_batch(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def head(self, spec: Spec) -> Any:
        """A layer with outputs "frames" and "predictions". See `ActionConditionedPredictor`."""
        from gunreal.tasks.contrastive_head import ActionConditionedPredictor

        return ActionConditionedPredictor(spec.num_actions, self.steps, self.units, name="cpc")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean cross-entropy of the seen frame among all frames of the batch, over all predictions.

        A prediction counts if the mask is 1 from its first step to the predicted step. A masked row between episodes
        keeps them apart. At chance level the loss is the logarithm of the number of frames.
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
