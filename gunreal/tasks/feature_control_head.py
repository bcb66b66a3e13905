"""The layers of feature control; apart from the task because agent processes, which load that, never load Keras."""

from __future__ import annotations

from typing import Any

from keras import layers, ops

UNITS = 128


class DuelingUnits(layers.Layer):
    """`Q = V + A - mean_a A` (Wang et al. 2016, eq. 9) of every unit of its own input.

    From features `[B, T, U]`, through a dense layer with ReLU, to a dict of "q" `[B, T, num_actions, U]` and the
    "features" themselves, scaled to a mean square of 1 in each state. They pass no gradient on: they are targets.
    """

    def __init__(self, num_actions: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_actions = num_actions
        self.dense = layers.Dense(UNITS, activation="relu", name="dense")

    def build(self, input_shape: Any) -> None:
        units = input_shape[-1]
        self.dense.build(input_shape)
        self.value = layers.Dense(units, name="value")
        self.advantage = layers.Dense(self.num_actions * units, name="advantage")
        for layer in (self.value, self.advantage):
            layer.build((*input_shape[:-1], UNITS))

    def call(self, features: Any) -> dict[str, Any]:
        hidden = self.dense(features)
        value = ops.expand_dims(self.value(hidden), 2)
        advantage = ops.reshape(self.advantage(hidden), (-1, features.shape[1], self.num_actions, features.shape[-1]))
        q = value + advantage - ops.mean(advantage, axis=2, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(features), axis=-1, keepdims=True) + 1e-6)
        return {"q": q, "features": ops.stop_gradient(features * scale)}
