"""The layers of pixel control; apart from the task because agent processes, which load that, never load Keras."""

from __future__ import annotations

from typing import Any

from keras import layers, ops

KERNEL, STRIDE, CHANNELS = 4, 2, 32


class DuelingDeconvolution(layers.Layer):
    """`Q = V + A - mean_a A` (Wang et al. 2016, eq. 9): features `[B, T, F]` to `[B, T, num_actions, *grid]`.

    A dense layer with ReLU to 32 maps, then two transposed convolutions 4x4, stride 2, for V and A (GUNREAL, figure 6;
    UNREAL section 3.1). Neither has a ReLU behind it, as values and advantages may be negative.
    All that follows the maps is linear, so V and A are combined as kernels, and one convolution makes Q.
    """

    def __init__(self, num_actions: int, grid: tuple[int, int], **kwargs: Any):
        super().__init__(**kwargs)
        self.num_actions, self.grid = num_actions, grid
        # VALID transposed convolutions make (n - 1) * STRIDE + KERNEL cells of n.
        self.maps = tuple((cells - KERNEL) // STRIDE + 1 for cells in grid) + (CHANNELS,)
        self.dense = layers.Dense(self.maps[0] * self.maps[1] * CHANNELS, activation="relu", name="dense")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.dense.build(input_shape)
        self.value_kernel = self.add_weight((KERNEL, KERNEL, 1, CHANNELS), name="value_kernel")
        self.value_bias = self.add_weight((1, 1), "zeros", name="value_bias")
        self.advantage_kernel = self.add_weight((KERNEL, KERNEL, self.num_actions, CHANNELS), name="advantage_kernel")
        self.advantage_bias = self.add_weight((self.num_actions, 1), "zeros", name="advantage_bias")

    def call(self, features: Any) -> Any:
        maps = ops.reshape(self.dense(features), (-1, *self.maps))
        kernel = _dueling(self.value_kernel, self.advantage_kernel)
        q = ops.conv_transpose(maps, kernel, STRIDE, "valid", data_format="channels_last")
        q = q + _dueling(self.value_bias, self.advantage_bias)[:, 0]
        q = ops.transpose(q, (0, 3, 1, 2))
        return ops.reshape(q, (-1, features.shape[1], self.num_actions, *self.grid))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:2], self.num_actions, *self.grid)


def _dueling(value: Any, advantage: Any) -> Any:
    """V + A - mean_a A, of weights whose last axis but one is the action."""
    return value + advantage - ops.mean(advantage, axis=-2, keepdims=True)
