"""The layers of pixel control. Separate from the task, which agent processes load without Keras."""

from __future__ import annotations

from typing import Any

from keras import layers, ops

KERNEL, STRIDE, CHANNELS = 4, 2, 32


class DuelingDeconvolution(layers.Layer):
    """A dueling Q function, `Q = V + A - mean_a A` (Wang et al. 2016, eq. 9), for every cell of a grid.

    It maps features `[B, T, F]` to `[B, T, num_actions, *grid]`. A dense layer with ReLU makes 32 maps. Two transposed
    4x4 convolutions with stride 2 make V and A (GUNREAL, figure 6; UNREAL section 3.1). They have no ReLU, because
    values and advantages may be negative.

    Everything after the maps is linear. The kernels of V and A are therefore combined, and one convolution computes Q.
    """

    def __init__(self, num_actions: int, grid: tuple[int, int], **kwargs: Any):
        super().__init__(**kwargs)
        self.num_actions, self.grid = num_actions, grid
        # A VALID transposed convolution turns n cells into (n - 1) * STRIDE + KERNEL.
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
    """V + A - mean_a A, for weights whose second-to-last axis is the action."""
    return value + advantage - ops.mean(advantage, axis=-2, keepdims=True)
