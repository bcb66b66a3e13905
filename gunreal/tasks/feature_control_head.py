"""The layers of feature control. Separate from the task, which agent processes load without Keras."""

from __future__ import annotations

from typing import Any

from keras import layers, ops

UNITS = 128


class DuelingUnits(layers.Layer):
    """A dueling Q function, `Q = V + A - mean_a A` (Wang et al. 2016, eq. 9), for every unit of its input.

    The input is features `[B, T, U]`, which pass through a dense layer with ReLU. The output is a dict of "q"
    `[B, T, num_actions, U]` and "features" `[B, T, U]`, the input scaled to a mean square of 1 in each state. The
    scaled features are targets and pass no gradient on.
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
