"""The layers of contrastive prediction; apart from the task as agent processes, which load that, never load Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import layers, ops

TEMPERATURE = 0.1


class ActionConditionedPredictor(layers.Layer):
    """Embeds frames, and predicts the embeddings of later ones along the actions taken.

    From a `Features` of "conv" `[B, T, Fc]` and "hidden" `[B, T, Fh]`, to a dict of

    - "frames" `[B, T, units]`, of the convolution features;
    - "predictions", if there is a batch: for 1, 2, ... `steps` steps ahead a tensor `[B, T - ahead, units]`, whose
      product with the frame `ahead` steps later is the score. Where an episode ends on the way they mean nothing.

    A score is a cosine over a temperature: the features' scale, which differs between games and grows in training, is
    not in it. On the ViZDoom maze that learned faster than the plain product.
    """

    def __init__(self, num_actions: int, steps: int, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_actions, self.steps, self.units = num_actions, steps, units
        self.frame = layers.Dense(units, name="frame")
        self.start = layers.Dense(units, activation="tanh", name="start")
        self.prediction = layers.Dense(units, name="prediction")

    def build(self, input_shape: Any) -> None:
        conv, hidden = input_shape
        self.frame.build(conv)
        self.start.build(hidden)
        self.prediction.build((*hidden[:-1], self.units))
        self.action_kernel = self.add_weight((self.num_actions, 3 * self.units), name="action_kernel")
        self.recurrent_kernel = self.add_weight((self.units, 3 * self.units), "orthogonal", name="recurrent_kernel")
        self.bias = self.add_weight((3 * self.units,), "zeros", name="bias")

    def call(self, features: Any, batch: Mapping[str, Any] | None = None) -> dict[str, Any]:
        conv, hidden = features
        frames = _unit(self.frame(conv))
        if batch is None:
            return {"frames": frames}
        actions = ops.one_hot(batch["action"], self.num_actions, dtype=frames.dtype)
        state, predictions = self.start(hidden), []
        for ahead in range(1, self.steps + 1):
            state = self._step(actions[:, ahead - 1 : -1], state[:, :-1])  # those that start too late drop out
            predictions.append(_unit(self.prediction(state)) / TEMPERATURE)
        return {"frames": frames, "predictions": predictions}

    def _step(self, action: Any, state: Any) -> Any:
        """A GRU (Cho et al. 2014) whose reset gate acts behind the recurrent product. Keras's own has a random state,
        which a head must not have."""
        inputs = ops.split(ops.matmul(action, self.action_kernel) + self.bias, 3, axis=-1)
        update, reset, recurrent = ops.split(ops.matmul(state, self.recurrent_kernel), 3, axis=-1)
        update, reset = ops.sigmoid(inputs[0] + update), ops.sigmoid(inputs[1] + reset)
        return update * state + (1 - update) * ops.tanh(inputs[2] + reset * recurrent)


def _unit(x: Any) -> Any:
    """`x` at length 1; a black frame's embedding may be 0, where the gradient has to be bounded."""
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-2)
