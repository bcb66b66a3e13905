"""The torso: maps observations to the features used by the actor-critic and the heads of all tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning.normalizer import Moments, Statistics, moments

_MOST_DEVIATIONS = 5.0  # clip range of normalized inputs, in standard deviations
# Lower bounds of the standard deviation of inputs. Without them, a pixel that rarely changes would dominate the others.
_LEAST_DEVIATION = {"uint8": 0.05, "float32": 1e-3}


class Features(NamedTuple):
    """The inputs of heads, float32.

    Attributes:
      conv: output of the last convolution, flattened to `[..., Fc]` as rows, columns, channels. The order does not
        depend on the layout, so that weights can be reused.
      hidden: output of the torso's last layer, `[..., Fh]`.
    """

    conv: Any
    hidden: Any


class Torso:
    """The layers that all tasks share.

    - "small": 16 filters 8x8 with stride 4, 32 filters 4x4 with stride 2, `hidden` units, ReLU (A3C, UNREAL; GA3C
      section 3.2).
    - "large": 32 filters 8x8 with stride `first_stride`, 32 and 64 filters 4x4 with stride 2, `hidden` units, ReLU
      (GA3C, footnote 2).
    - "lstm": "small", followed by an LSTM with `hidden` units that also receives the last action and the last reward
      (UNREAL, section 3).
    - "mlp": two layers of `hidden` units, tanh. The "conv" features are those of the first layer.

    Convolutions are not padded. The initial weights depend on `seed` alone.

    Attributes:
      layers: the layers in order, each with a unique name.
      recurrent: whether `unroll` must follow `features`.
      statistics: moments that normalize the frames, or None.
    """

    def __init__(
        self,
        spec: Spec,
        kind: str,
        first_stride: int,
        hidden: int,
        data_format: str,
        normalize: str,
        seed: int,
        fuse: Callable[..., Any] | None = None,
    ):
        """See `network.Network`. Raises ConfigError if the network does not fit the observations."""
        self._spec = spec
        self.statistics = _statistics(spec, normalize)
        self._compute = keras.config.dtype_policy().compute_dtype
        self._channels_last = data_format == "channels_last"
        self._is_conv = kind != "mlp"
        self._scale = 1 / 255 if spec.dtype == "uint8" else 1.0
        sizes = _sizes(kind, first_stride, hidden)
        if self._is_conv:
            _check_image(spec, sizes[:-1], kind)
        self._fused_input = fuse(self._input) if fuse else self._input
        self.layers = _layers(sizes, "relu" if self._is_conv else "tanh", data_format, seed)
        *self._body, self._last = self.layers
        self.recurrent = kind == "lstm"
        if self.recurrent:
            self._cell = keras.layers.LSTMCell(
                hidden,
                kernel_initializer=keras.initializers.GlorotUniform(seed + len(sizes) + 2),
                recurrent_initializer=keras.initializers.Orthogonal(1.0, seed + len(sizes) + 3),
                dtype="float32",  # its state lives through whole episodes
                name="lstm",
            )
            self._cell.build((None, hidden + spec.num_actions + 1))
            self.layers.append(self._cell)

    def features(self, observations: Any) -> Features:
        """Features `[N, F]` of `observations` `[N, *spec.observation]`, without the recurrence.

        Args:
          observations: observations as stored, not scaled or normalized.
        """
        symbolic = keras.utils.is_keras_tensor(observations)  # while a network is built
        x = self._input(observations) if symbolic else self._fused_input(observations)
        for layer in self._body:
            x = layer(x)
        if self._is_conv:
            x = x if self._channels_last else ops.transpose(x, (0, 2, 3, 1))
            x = ops.reshape(x, (-1, math.prod(x.shape[1:])))
        return Features(ops.cast(x, "float32"), ops.cast(self._last(x), "float32"))

    def _input(self, observations: Any) -> Any:
        """The input of the first layer."""
        if self.statistics is None:
            x = ops.cast(observations, self._compute) * self._scale
        else:
            x = ops.cast(self._normalized(ops.cast(observations, "float32") * self._scale), self._compute)
        if not self._is_conv:
            return ops.reshape(x, (-1, math.prod(self._spec.observation)))
        # Transpose after the cast, because TensorFlow transposes floats faster than bytes.
        return ops.transpose(x, (0, 2, 3, 1)) if self._channels_last else x

    def _normalized(self, x: Any) -> Any:
        """Normalizes `x` with the moments of a single frame, which apply to every frame of a stack."""
        assert self.statistics is not None
        known = self.statistics.now()
        repeats = (self._spec.stack, *[1] * (len(self._spec.frame) - 1))
        mean = ops.tile(known.mean, repeats)
        inverse = ops.tile(1.0 / self.statistics.deviation(known), repeats)
        return ops.clip((x - mean) * inverse, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def moments(self, observations: Any, weight: Any) -> Moments:
        """Moments of the newest frames of `observations` `[N, *spec.observation]` whose `weight` `[N]` is 1."""
        assert self.statistics is not None
        newest = ops.cast(observations[:, -self._spec.frame[0] :], "float32") * self._scale
        inner = [axis + 1 for axis, size in enumerate(self.statistics.variables[0].shape) if size == 1]
        return moments(newest, weight, (0, *inner))

    def unroll(self, hidden: Any, past: Past) -> tuple[Any, Any]:
        """Runs the LSTM along sequences. Its state is reset to zeros at the first step of an episode.

        The steps are unrolled, because sequences are short and a loop in the graph would cost more than the cell.

        Args:
          hidden: float32 `[B, T, Fh]`, from `features`.
          past: `[B, ...]`, the state before each sequence and the action and reward before each step.

        Returns:
          The outputs float32 `[B, T, Fh]`, and the state after the last step `[B, spec.state]`.
        """
        goes_on = ops.cast(past.last_action >= 0, "float32")
        last_action = ops.one_hot(past.last_action, self._spec.num_actions, dtype="float32")  # zeros for -1
        x = ops.concatenate([hidden, last_action, ops.expand_dims(past.last_reward, -1)], axis=-1)
        h, c = ops.split(past.state, 2, axis=-1)
        outputs = []
        for t in range(x.shape[1]):
            keep = goes_on[:, t : t + 1]
            _, (h, c) = self._cell(x[:, t], [h * keep, c * keep])
            outputs.append(h)
        return ops.stack(outputs, axis=1), ops.concatenate([h, c], axis=-1)


def _statistics(spec: Spec, normalize: str) -> Statistics | None:
    if normalize == "off":
        return None
    shape = (spec.frame[0], *[1] * (len(spec.frame) - 1)) if normalize == "channel" else spec.frame
    return Statistics(shape, _LEAST_DEVIATION[spec.dtype], math.inf)


def _sizes(kind: str, first_stride: int, hidden: int) -> list[tuple[int, ...]]:
    """Sizes of a torso's layers: (filters, kernel, stride) for convolutions and (units,) for dense layers."""
    if kind in ("small", "lstm"):
        return [(16, 8, 4), (32, 4, 2), (hidden,)]
    if kind == "large":
        return [(32, 8, first_stride), (32, 4, 2), (64, 4, 2), (hidden,)]
    if kind == "mlp":
        return [(hidden,), (hidden,)]
    raise ValueError(f"unknown network {kind!r}; use small, large, lstm or mlp")


def _check_image(spec: Spec, convolutions: Sequence[tuple[int, ...]], kind: str) -> None:
    if not spec.is_image:
        raise ConfigError(f"the {kind} network needs images, not vectors of {spec.frame[0]}; use the mlp network")
    size = min(spec.frame[1:])
    for _, kernel, stride in convolutions:
        size = (size - kernel) // stride + 1 if size >= kernel else 0
    if size < 1:
        raise ConfigError(f"frames of {spec.frame} are too small for the {kind} network; use larger frames or mlp")


def dense(name: str, units: int, gain: float, seed: int, activation: str | None = None) -> Any:
    """A dense layer with orthogonal initial weights."""
    initializer = keras.initializers.Orthogonal(gain, seed)
    return keras.layers.Dense(units, activation, kernel_initializer=initializer, name=name)


def _layers(sizes: Sequence[tuple[int, ...]], activation: str, data_format: str, seed: int) -> list[Any]:
    layers = []
    for place, size in enumerate(sizes):
        if len(size) == 1:
            layers.append(dense(f"fc{place + 1}", size[0], math.sqrt(2), seed + place, activation))
            continue
        filters, kernel, stride = size
        initializer = keras.initializers.Orthogonal(math.sqrt(2), seed + place)
        layers.append(
            keras.layers.Conv2D(
                filters,
                kernel,
                stride,
                data_format=data_format,
                activation=activation,
                kernel_initializer=initializer,
                name=f"conv{place + 1}",
            )
        )
    return layers
