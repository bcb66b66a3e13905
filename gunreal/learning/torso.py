"""The torso: from observations to the features that the actor-critic and every task's head build on."""

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

_MOST_DEVIATIONS = 5.0  # from the mean, in which an input is clipped
# Divisors of normalised inputs are no smaller. A pixel that has hardly ever changed would else drown the others.
_LEAST_DEVIATION = {"uint8": 0.05, "float32": 1e-3}


class Features(NamedTuple):
    """What heads build on, float32.

    Attributes:
      conv: `[..., Fc]`, the last convolution, flat: rows, columns, channels in either layout, as weights carry over.
      hidden: `[..., Fh]`, the torso's last layer.
    """

    conv: Any
    hidden: Any


class Torso:
    """The layers that all tasks share.

    - "small": 16 filters 8x8/4, 32 filters 4x4/2, `hidden` units; ReLU (A3C, UNREAL; GA3C section 3.2).
    - "large": 32 filters 8x8/`first_stride`, 32 and 64 filters 4x4/2, `hidden` units; ReLU (GA3C, footnote 2).
    - "lstm": "small", then an LSTM of `hidden` units that also sees the last action and the last reward (UNREAL,
      section 3).
    - "mlp": two layers of `hidden` units; tanh. Its "conv" features are the first layer's.

    Convolutions are not padded. The initial weights depend on `seed` alone.

    Attributes:
      layers: in the order of their use, each with a unique name.
      recurrent: whether `unroll` has to follow.
      statistics: of the frames, which are normalised by them; None where they are not.
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
        """See `network.Network`. Raises ConfigError where the network does not fit the observations."""
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
        """Features `[N, F]` of `observations` `[N, *spec.observation]`; a recurrent torso's without the recurrence.

        Args:
          observations: as stored.
        """
        symbolic = keras.utils.is_keras_tensor(observations)  # when a network is built
        x = self._input(observations) if symbolic else self._fused_input(observations)
        for layer in self._body:
            x = layer(x)
        if self._is_conv:
            x = x if self._channels_last else ops.transpose(x, (0, 2, 3, 1))
            x = ops.reshape(x, (-1, math.prod(x.shape[1:])))
        return Features(ops.cast(x, "float32"), ops.cast(self._last(x), "float32"))

    def _input(self, observations: Any) -> Any:
        """What the first layer takes."""
        if self.statistics is None:
            x = ops.cast(observations, self._compute) * self._scale
        else:
            x = ops.cast(self._normalized(ops.cast(observations, "float32") * self._scale), self._compute)
        if not self._is_conv:
            return ops.reshape(x, (-1, math.prod(self._spec.observation)))
        # After the cast: TensorFlow's transpose of bytes is slower than that of floats.
        return ops.transpose(x, (0, 2, 3, 1)) if self._channels_last else x

    def _normalized(self, x: Any) -> Any:
        """`x` less the mean of its pixel in one frame, divided by the deviation; every frame of a stack alike."""
        assert self.statistics is not None
        known = self.statistics.now()
        repeats = (self._spec.stack, *[1] * (len(self._spec.frame) - 1))
        mean = ops.tile(known.mean, repeats)
        inverse = ops.tile(1.0 / self.statistics.deviation(known), repeats)
        return ops.clip((x - mean) * inverse, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def moments(self, observations: Any, weight: Any) -> Moments:
        """Moments of the newest frame of `observations` `[N, *spec.observation]` whose `weight` `[N]` is 1."""
        assert self.statistics is not None
        newest = ops.cast(observations[:, -self._spec.frame[0] :], "float32") * self._scale
        inner = [axis + 1 for axis, size in enumerate(self.statistics.variables[0].shape) if size == 1]
        return moments(newest, weight, (0, *inner))

    def unroll(self, hidden: Any, past: Past) -> tuple[Any, Any]:
        """Runs the LSTM along sequences; at an episode's first step its state is reset to zeros.

        The steps are unrolled, as sequences are short: a loop of the graph would cost more than the cell.

        Args:
          hidden: float32 `[B, T, Fh]`, from `features`.
          past: `[B, ...]`, what was before each sequence and each step.

        Returns:
          float32 `[B, T, Fh]`, and the state behind the last step `[B, spec.state]`.
        """
        goes_on = ops.cast(past.last_action >= 0, "float32")
        last_action = ops.one_hot(past.last_action, self._spec.num_actions, dtype="float32")  # of -1: zeros
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
    """Layers of a torso: convolutions (filters, kernel, stride), dense layers (units,)."""
    if kind in ("small", "lstm"):
        return [(16, 8, 4), (32, 4, 2), (hidden,)]
    if kind == "large":
        return [(32, 8, first_stride), (32, 4, 2), (64, 4, 2), (hidden,)]
    if kind == "mlp":
        return [(hidden,), (hidden,)]
    raise ValueError(f"network {kind!r} is unknown; use small, large, lstm or mlp")


def _check_image(spec: Spec, convolutions: Sequence[tuple[int, ...]], kind: str) -> None:
    if not spec.is_image:
        raise ConfigError(f"the {kind} network needs images, not vectors of {spec.frame[0]}; use the mlp network")
    size = min(spec.frame[1:])
    for _, kernel, stride in convolutions:
        size = (size - kernel) // stride + 1 if size >= kernel else 0
    if size < 1:
        raise ConfigError(f"frames of {spec.frame} are too small for the {kind} network; use larger frames or the mlp")


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
