"""The torso: maps observations to the features used by the actor-critic and the heads of all tasks."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning.architecture import Architecture
from gunreal.learning.building import constants, laid_out, seeded
from gunreal.learning.normalizer import Moments, Statistics, moments

_MOST_DEVIATIONS = 5.0  # clip range of normalized inputs, in standard deviations
# Lower bounds of the standard deviation of inputs. Without them, a pixel that rarely changes would dominate the others.
_LEAST_DEVIATION = {"uint8": 0.05, "float32": 1e-3}
_MOST_REWARD = 10.0  # that the cell sees

# What the methods of a network may return, by the number of axes.
_BODY = {2: "[N, Fc]", 4: "images"}
_TOP = {2: "[N, Fh]"}


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
    """The layers that all tasks share: those of an `Architecture`, and what comes before them.

    The initial weights depend on the seed alone.

    Attributes:
      layers: the layers with weights, by their unique names, in order. The cell of a recurrent network is the last.
      recurrent: whether `unroll` must follow `features`.
      model: the layers before the recurrence.
      statistics: moments that normalize the inputs, "observation" for the frames and "vector", or none.
      widths: sizes of the features, those after the recurrence.
    """

    def __init__(
        self,
        spec: Spec,
        architecture: Architecture,
        data_format: str,
        normalize: str,
        seed: int,
        fuse: Callable[..., Any] | None = None,
    ):
        """See `network.Network`. Raises ConfigError if the layers cannot be used."""
        self._spec = spec
        self.statistics = _statistics(spec, normalize)
        self._compute = keras.config.dtype_policy().compute_dtype
        self._channels_last = data_format == "channels_last"
        self._takes_images = architecture.takes_images
        self._scale = 1 / 255 if spec.dtype == "uint8" else 1.0
        self._fused_input = fuse(self._input) if fuse else self._input
        with seeded(zlib.crc32(f"{seed}/torso".encode())), laid_out(data_format):
            image = self._input(keras.KerasTensor((None, *spec.observation), spec.dtype))
            image = keras.Input(image.shape[1:], dtype=self._compute)
            vector = keras.Input((spec.vectors,), dtype=self._compute) if spec.vectors else None
            given = {"vector": vector} if architecture.takes_vector() else {}
            flat = self._flat(_checked(architecture.body(image, seed, **given), architecture, "body", _BODY))
            both = flat if given or vector is None else ops.concatenate([flat, vector], axis=-1)
            hidden = _checked(architecture.top(both, seed), architecture, "top", _TOP)
            self.model = keras.Model([image] if vector is None else [image, vector], [flat, hidden])
            self.widths = Features(*(int(output.shape[-1]) for output in self.model.outputs))
            layers = [layer for layer in self.model.layers if layer.weights]
            self._cell = architecture.cell(seed)
            self.recurrent = self._cell is not None
            if self.recurrent:
                inputs = self.widths.hidden + spec.num_actions + 1
                self._cell.build((None, inputs))
                self.widths = self.widths._replace(hidden=self._cell.output_size)
                layers.append(self._cell)
        self.layers = {_stable_name(layer, place): layer for place, layer in enumerate(layers)}
        self._state_sizes = _state_sizes(self._cell)
        if (size := sum(self._state_sizes)) != spec.state:
            name = architecture.name
            raise ConfigError(f"the cell of the {name} network has {size} floats of state, but state() is {spec.state}")
        if self.recurrent and spec.bonus_steps == 2:
            self._check_last_output(inputs, architecture.name)

    def features(self, observations: Any, vector: Any = None, fused: bool = True) -> Features:
        """Features `[N, F]` of `observations` `[N, *spec.observation]`, without the recurrence.

        Args:
          observations: observations as stored, not scaled or normalized.
          vector: the numbers beside them, `[N, spec.vectors]`, if there are any.
          fused: whether the input may be computed by the compiled function.
        """
        fused = fused and not keras.utils.is_keras_tensor(observations)  # Keras traces no compiled function
        inputs = [(self._fused_input if fused else self._input)(observations)]
        if self._spec.vectors:
            inputs.append(ops.cast(self._normalized(ops.cast(vector, "float32"), "vector"), self._compute))
        conv, hidden = self.model(inputs)
        return Features(ops.cast(conv, "float32"), ops.cast(hidden, "float32"))

    def _flat(self, x: Any) -> Any:
        """The output of the body as `[N, Fc]`."""
        if len(x.shape) == 2:
            return x
        x = x if self._channels_last else ops.transpose(x, (0, 2, 3, 1))
        return ops.reshape(x, (-1, math.prod(x.shape[1:])))

    def _input(self, observations: Any) -> Any:
        """The input of the first layer."""
        if not self.statistics:
            x = ops.cast(observations, self._compute) * self._scale
        else:
            scaled, repeats = ops.cast(observations, "float32") * self._scale, [1] * (len(self._spec.frame) - 1)
            x = ops.cast(self._normalized(scaled, "observation", self._spec.stack, *repeats), self._compute)
        if not self._takes_images:
            return ops.reshape(x, (-1, math.prod(self._spec.observation)))
        # Transpose after the cast, because TensorFlow transposes floats faster than bytes.
        return ops.transpose(x, (0, 2, 3, 1)) if self._channels_last else x

    def _normalized(self, x: Any, name: str, *repeats: int) -> Any:
        """Normalizes `x` by the named moments, if there are any. Those of a frame apply to every frame of a stack."""
        if name not in self.statistics:
            return x
        known = self.statistics[name].now()
        mean, inverse = known.mean, 1.0 / self.statistics[name].deviation(known)
        if repeats:
            mean, inverse = ops.tile(mean, repeats), ops.tile(inverse, repeats)
        mean, inverse = constants(x, mean, inverse)
        return ops.clip((x - mean) * inverse, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)

    def moments(self, observations: Any, weight: Any, vector: Any = None) -> dict[str, Moments]:
        """Moments of the inputs whose `weight` `[N]` is 1, by the names of `statistics`.

        `observations` are `[N, *spec.observation]`, of which the newest frames count, and `vector` is as in `features`.
        """
        found = {}
        if "observation" in self.statistics:
            newest = ops.cast(observations[:, -self._spec.frame[0] :], "float32") * self._scale
            shape = self.statistics["observation"].variables[0].shape
            inner = [axis + 1 for axis, size in enumerate(shape) if size == 1]
            found["observation"] = moments(newest, weight, (0, *inner))
        if "vector" in self.statistics:
            found["vector"] = moments(ops.cast(vector, "float32"), weight, (0,))
        return found

    def unroll(self, hidden: Any, past: Past) -> tuple[Any, Any]:
        """Runs the cell along sequences. Its state is reset to zeros at the first step of an episode.

        The steps are unrolled, because sequences are short and a loop in the graph would cost more than the cell.

        Args:
          hidden: float32 `[B, T, Fh]`, from `features`.
          past: `[B, ...]`, the state before each sequence and the action and reward before each step.

        Returns:
          The outputs float32 `[B, T, Fh]`, and the state after the last step `[B, spec.state]`.
        """
        goes_on = past.last_action >= 0
        # Zeros for -1. `ops.one_hot` would mean the last action by it in ONNX.
        actions = np.arange(self._spec.num_actions, dtype=np.int32)
        last_action = ops.cast(ops.equal(ops.expand_dims(past.last_action, -1), actions), "float32")
        # A larger reward would saturate the cell.
        last_reward = ops.clip(ops.expand_dims(past.last_reward, -1), -_MOST_REWARD, _MOST_REWARD)
        x = ops.concatenate([hidden, last_action, last_reward], axis=-1)
        ends = itertools.accumulate(self._state_sizes, initial=0)
        states = [past.state[:, start:end] for start, end in itertools.pairwise(ends)]
        outputs = []
        for t in range(x.shape[1]):
            keep = goes_on[:, t : t + 1]
            output, states = self._cell(x[:, t], [ops.where(keep, state, 0.0) for state in states])
            outputs.append(output)
        return ops.stack(outputs, axis=1), ops.concatenate(states, axis=-1)

    def last_output(self, past: Past) -> Any:
        """The output of the cell in the step before sequences, float32 `[B, 1, Fh]`."""
        return ops.expand_dims(past.state[:, : self._state_sizes[0]], 1)

    def _check_last_output(self, width: int, name: str) -> None:
        """Raises ConfigError if the state of the cell does not begin with its output for inputs of this width."""
        output, (first, *_) = self._cell(ops.ones((1, width)), [ops.zeros((1, size)) for size in self._state_sizes])
        if not np.array_equal(*map(ops.convert_to_numpy, (output, first))):
            found = f"the state of the cell of the {name} network does not begin with its output"
            raise ConfigError(f"{found}, as that of an LSTM does; leave out tasks with a bonus of two observations")


def _statistics(spec: Spec, normalize: str) -> dict[str, Statistics]:
    if normalize == "off":
        return {}
    shape = (spec.frame[0], *[1] * (len(spec.frame) - 1)) if normalize == "channel" else spec.frame
    found = {"observation": Statistics(shape, _LEAST_DEVIATION[spec.dtype], math.inf)}
    if spec.vectors:
        found["vector"] = Statistics((spec.vectors,), _LEAST_DEVIATION["float32"], math.inf)
    return found


def _checked(output: Any, architecture: Architecture, method: str, wanted: Mapping[int, str]) -> Any:
    """The output of a method of a network, if it is a tensor with a `wanted` number of axes of known sizes."""
    what = f"a {type(output).__name__}"
    if keras.utils.is_keras_tensor(output):
        if len(output.shape) in wanted and None not in output.shape[1:]:
            return output
        what = f"the shape {tuple(output.shape)}"
    raise ConfigError(
        f"{method}() of the {architecture.name} network returned {what}; return one Keras tensor, "
        f"{' or '.join(wanted.values())}"
    )


def _stable_name(layer: Any, place: int) -> str:
    """A layer's name. Keras numbers layers without one by a counter per process; these are named by their place."""
    default = type(layer).__name__.lower().rstrip("0123456789")
    given = layer.name.rstrip("0123456789_").replace("_", "") != default
    return str(layer.name) if given else str(place)


def _state_sizes(cell: Any) -> list[int]:
    """The sizes of the parts of a cell's state."""
    if cell is None:
        return []
    return [cell.state_size] if isinstance(cell.state_size, int) else list(cell.state_size)
