"""Latent self-prediction: what will the features be, a few actions later? (SPR, Schwarzer et al. 2021)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.experience.spec import Spec
from gunreal.tasks.future_prediction import FuturePrediction


@dataclasses.dataclass(frozen=True)
class SelfPrediction(FuturePrediction):
    """Predicts the torso's own last layer from the actions taken.

    A transition model rolls forward from the features of a step. The projection of each of its states must point in the
    same direction as the projection of the features found at that step.

    Targets come from the present network and pass no gradient on. This is the variant of SPR whose target network is
    the network itself (tau = 0). Targets are standardized over the batch, which keeps the features from collapsing to a
    constant. `gunreal_representations.spr:Spr` in the examples has moving averages and shifted views instead.

    Options:
      weight: weight of the loss, which is 1 for unrelated and 0 for perfect predictions.
      steps: maximum number of steps ahead to predict, K in the paper.
      units: size of the compared projections.
    """

    name = "spr"
    weight: float = 0.5
    steps: int = 5

    def head(self, spec: Spec) -> Any:
        """A layer with outputs "targets" and "predictions". See `LatentTransition`."""
        from gunreal.tasks.self_prediction_head import LatentTransition

        return LatentTransition(spec.num_actions, self.steps, self.units, name="spr")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        """Mean of one minus the cosine of a prediction and its target, over all predictions within an episode."""
        from keras import ops

        from gunreal.learning.losses import mean_ahead

        targets, found = outputs["targets"], enumerate(outputs["predictions"], 1)
        return mean_ahead([1 - ops.sum(x * targets[:, ahead:], axis=-1) for ahead, x in found], batch["mask"])
