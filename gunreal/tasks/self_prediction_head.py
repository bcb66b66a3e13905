"""The layers of latent self-prediction. Separate from the task, which agent processes load without Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import layers, ops

from gunreal.learning.losses import unit

_LEAST = 1e-6


class LatentTransition(layers.Layer):
    """Predicts projections of later features from the actions taken (SPR, Schwarzer et al. 2021, section 2.2).

    The input is features `[B, T, F]`. The output is a dict of

    - "targets" `[B, T, units]`, projections of the features, without a gradient;
    - "predictions", given a batch: a list with a tensor `[B, T - ahead, units]` for each of 1, 2, ... `steps` steps
      ahead. Predictions across the end of an episode are meaningless.

    All of them have length 1. The transition model adds a correction to the features, which depends on the features and
    the action. Targets are first standardized over the steps of the batch. Without this, features and predictions can
    become the same for all steps, which would make the loss 0.
    """

    def __init__(self, num_actions: int, steps: int, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_actions, self.steps, self.units = num_actions, steps, units
        self.state = layers.Dense(units, name="state")
        self.projection = layers.Dense(units, name="projection")
        self.prediction = layers.Dense(units, name="prediction")

    def build(self, input_shape: Any) -> None:
        self.state.build(input_shape)
        self.action_kernel = self.add_weight((self.num_actions, self.units), name="action_kernel")
        self.correction = layers.Dense(input_shape[-1], name="correction")
        self.correction.build((*input_shape[:-1], self.units))
        self.projection.build(input_shape)
        self.prediction.build((*input_shape[:-1], self.units))

    def call(self, features: Any, batch: Mapping[str, Any] | None = None) -> dict[str, Any]:
        targets = self.projection(features)
        mask = ops.ones_like(targets[..., :1]) if batch is None else batch["mask"][..., None]
        targets = ops.stop_gradient(unit(_standardized(targets, mask), _LEAST))
        if batch is None:
            return {"targets": targets}
        actions = ops.matmul(ops.one_hot(batch["action"], self.num_actions, dtype=features.dtype), self.action_kernel)
        predictions = []
        for ahead in range(1, self.steps + 1):
            features, action = features[:, :-1], actions[:, ahead - 1 : -1]  # drops sequences that start too late
            features = features + self.correction(ops.relu(self.state(features) + action))
            predictions.append(unit(self.prediction(self.projection(features)), _LEAST))
        return {"targets": targets, "predictions": predictions}


def _standardized(x: Any, mask: Any) -> Any:
    """Scales each column of `x` `[B, T, F]` to mean 0 and variance 1 over the steps where `mask` `[B, T, 1]` is 1."""
    count = ops.maximum(ops.sum(mask), 1.0)
    x = x - ops.sum(mask * x, axis=(0, 1)) / count
    return x * ops.rsqrt(ops.sum(mask * ops.square(x), axis=(0, 1)) / count + 1e-6)
