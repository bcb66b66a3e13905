"""Contrastive prediction: which of many frames follows a given sequence of actions? (CPC|A, Guo et al. 2018)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.experience.spec import Spec
from gunreal.tasks.future_prediction import FuturePrediction


@dataclasses.dataclass(frozen=True)
class Contrastive(FuturePrediction):
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
        starts at the logarithm of the number of frames, 5.8 for 320 frames.
      steps: maximum number of steps ahead to predict.
      units: number of GRU units, and size of the compared embeddings.
    """

    name = "cpc"
    features = "both"
    weight: float = 0.03

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

        from gunreal.learning.losses import mean_ahead

        frames, mask = outputs["frames"], batch["mask"]
        candidates = ops.reshape(frames, (-1, frames.shape[-1]))
        absent = (ops.reshape(mask, (-1,)) - 1) * 1e9
        errors = []
        for ahead, predictions in enumerate(outputs["predictions"], 1):
            scores = ops.matmul(predictions, ops.transpose(candidates)) + absent
            errors.append(ops.logsumexp(scores, axis=-1) - ops.sum(predictions * frames[:, ahead:], axis=-1))
        return mean_ahead(errors, mask)
