"""The layers of contrastive prediction. Separate from the task, which agent processes load without Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import layers, ops

from gunreal.learning.losses import unit

TEMPERATURE = 0.1
_LEAST = 1e-2  # for the embedding of a black frame, which may be 0


class ActionConditionedPredictor(layers.Layer):
    """Embeds frames, and predicts the embeddings of later frames from the actions taken.

    The input is a `Features` with "conv" `[B, T, Fc]` and "hidden" `[B, T, Fh]`. The output is a dict of

    - "frames" `[B, T, units]`, embeddings of the convolution features;
    - "predictions", given a batch: a list with a tensor `[B, T - ahead, units]` for each of 1, 2, ... `steps` steps
      ahead. Its product with the frame `ahead` steps later is the score. Predictions across the end of an episode are
      meaningless.

    A score is a cosine divided by a temperature. It does not depend on the scale of the features, which differs between
    games and grows during training. On the ViZDoom maze this learned faster than the plain product.
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
        frames = unit(self.frame(conv), _LEAST)
        if batch is None:
            return {"frames": frames}
        actions = ops.one_hot(batch["action"], self.num_actions, dtype=frames.dtype)
        state, predictions = self.start(hidden), []
        for ahead in range(1, self.steps + 1):
            state = self._step(actions[:, ahead - 1 : -1], state[:, :-1])  # drops sequences that start too late
            predictions.append(unit(self.prediction(state), _LEAST) / TEMPERATURE)
        return {"frames": frames, "predictions": predictions}

    def _step(self, action: Any, state: Any) -> Any:
        """One step of a GRU (Cho et al. 2014) whose reset gate acts after the recurrent product."""
        inputs = ops.split(ops.matmul(action, self.action_kernel) + self.bias, 3, axis=-1)
        update, reset, recurrent = ops.split(ops.matmul(state, self.recurrent_kernel), 3, axis=-1)
        update, reset = ops.sigmoid(inputs[0] + update), ops.sigmoid(inputs[1] + reset)
        return update * state + (1 - update) * ops.tanh(inputs[2] + reset * recurrent)
