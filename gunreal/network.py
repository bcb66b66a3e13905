"""The network: a torso that all tasks share, the actor-critic's two layers on it, and the heads of the tasks."""

from __future__ import annotations

import contextlib
import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from gunreal import losses
from gunreal.config import ConfigError
from gunreal.spec import Spec
from gunreal.tasks.base import AuxiliaryTask


class Features(NamedTuple):
    """What heads build on, float32.

    Attributes:
      conv: `[N, Fc]`, the last convolution, flat: rows, columns, channels in either layout, so that weights carry over.
      hidden: `[N, Fh]`, the torso's last layer.
    """

    conv: Any
    hidden: Any


class Network:
    """Torso, policy, value and the tasks' heads.

    - "small": 16 filters 8x8/4, 32 filters 4x4/2, `hidden` units; ReLU (A3C, UNREAL; GA3C section 3.2).
    - "large": 32 filters 8x8/`first_stride`, 32 and 64 filters 4x4/2, `hidden` units; ReLU (GA3C, footnote 2).
    - "mlp": two layers of `hidden` units; tanh. Its "conv" features are the first layer's.

    Convolutions are not padded. The initial weights of torso, policy and value depend on `seed` alone, and a head's on
    `seed` and its task's name, so that runs with different tasks start from the same torso.

    Attributes:
      spec: shapes and constants.
      tasks: the auxiliary tasks, in the order of their rows in a batch.
      lengths: rows of each sequence of the batch: the base rollout's, then each task's.
      trainable_variables: torso, policy, value, heads.
      names: unique names of `trainable_variables`, the same in every process ("torso/conv1/kernel", "pc/0/kernel").
    """

    def __init__(
        self,
        spec: Spec,
        tasks: Sequence[AuxiliaryTask],
        *,
        kind: str = "small",
        first_stride: int = 4,
        hidden: int = 256,
        data_format: str = "channels_last",
        seed: int = 0,
    ):
        """Builds all layers.

        Args:
          spec: observations are `[N, *spec.observation]` of `spec.dtype`; uint8 is scaled to [0, 1] inside.
          tasks: the auxiliary tasks.
          kind: "small", "large" or "mlp".
          first_stride: of the large network's first convolution.
          hidden: units of the torso's last layer.
          data_format: of the convolutions, "channels_first" or "channels_last"; observations are NCHW in either.
          seed: of the initial weights.

        Raises:
          ConfigError: the network does not fit the observations.
          ValueError: a head does not fit.
        """
        self.spec, self.tasks = spec, tuple(tasks)
        self.lengths = (spec.t_max, *(task.length(spec.t_max) for task in self.tasks))
        self._channels_last = data_format == "channels_last"
        self._is_conv = kind != "mlp"
        self._scale = 1 / 255 if spec.dtype == "uint8" else 1.0
        sizes = _torso_sizes(kind, first_stride, hidden)
        if self._is_conv:
            _check_image(spec, sizes[:-1], kind)
        self._torso = _torso(sizes, "relu" if self._is_conv else "tanh", data_format, seed)
        self._policy = _dense("policy", spec.num_actions, 0.01, seed + len(sizes))
        self._value = _dense("value", 1, 1.0, seed + len(sizes) + 1)
        self._heads: dict[str, Any] = {}
        features = self.features(keras.KerasTensor((None, *spec.observation), spec.dtype))
        self.policy_value(features.hidden)
        self.trainable_variables: list[Any] = []
        self.names: list[str] = []
        for layer in self._torso:
            self._track(f"torso/{layer.name}", layer)
        for layer in (self._policy, self._value):
            self._track(layer.name, layer)
        for task in self.tasks:
            self._build_head(task, features, seed)

    def _track(self, prefix: str, layer: Any) -> None:
        for variable in layer.trainable_variables:
            self.names.append(f"{prefix}/{variable.name}")
            self.trainable_variables.append(variable)

    def _build_head(self, task: AuxiliaryTask, features: Features, seed: int) -> None:
        with _seeded(zlib.crc32(f"{seed}/{task.name}".encode())):
            head = self._heads[task.name] = task.head(self.spec)
            if head is None:
                return
            size = getattr(features, task.features).shape[-1]
            head(keras.KerasTensor((None, task.length(self.spec.t_max), size)))
        if head.non_trainable_variables:
            names = ", ".join(variable.path for variable in head.non_trainable_variables)
            raise ValueError(f"task {task.name!r}: its head has untrained state ({names}); use layers without")
        # Keras numbers layers by a counter of the process, so a head's variables are named by their place.
        for place, variable in enumerate(head.trainable_variables):
            self.names.append(f"{task.name}/{place}/{variable.name}")
            self.trainable_variables.append(variable)

    def features(self, observations: Any) -> Features:
        """The torso's features of `observations` `[N, *spec.observation]`."""
        *body, last = self._torso
        x = ops.cast(observations, "float32") * self._scale
        if not self._is_conv:
            x = ops.reshape(x, (-1, math.prod(self.spec.observation)))
        elif self._channels_last:  # after the cast: TensorFlow's transpose of bytes is slower than that of floats
            x = ops.transpose(x, (0, 2, 3, 1))
        for layer in body:
            x = layer(x)
        if self._is_conv:
            x = x if self._channels_last else ops.transpose(x, (0, 2, 3, 1))
            x = ops.reshape(x, (-1, math.prod(x.shape[1:])))
        return Features(x, last(x))

    def policy_value(self, hidden: Any) -> dict[str, Any]:
        """The actor-critic's outputs: "logits" `[..., A]` and "value" `[...]`, of `hidden` `[..., Fh]`."""
        return {"logits": self._policy(hidden), "value": ops.squeeze(self._value(hidden), axis=-1)}

    def task_outputs(self, task: AuxiliaryTask, features: Features) -> Any:
        """A task's outputs `[B, T, ...]`, of features `[B, T, F]`."""
        head = self._heads[task.name]
        return self.policy_value(features.hidden) if head is None else head(getattr(features, task.features))

    def predict(self, head: str, observations: Any) -> tuple[Any, ...]:
        """What agents ask for at single states.

        Args:
          head: "base", or the name of a task that bootstraps.
          observations: `[N, *spec.observation]`.

        Returns:
          For "base" `(logits [N, A], value [N])`, for a task `(bootstrap [N, ...],)`.
        """
        features = self.features(observations)
        if head == "base":
            outputs = self.policy_value(features.hidden)
            return outputs["logits"], outputs["value"]
        task = next(task for task in self.tasks if task.name == head)
        assert task.bootstrap is not None
        return (task.bootstrap(self.task_outputs(task, Features(*(ops.expand_dims(x, 1) for x in features)))),)

    def loss(
        self, batch: Mapping[str, Any], *, entropy: float, value_weight: float, log_epsilon: float
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of all tasks, `a3c + sum(weight_i * loss_i)` (UNREAL, eq. 4), in one pass through the torso.

        Args:
          batch: "observations" `[N, *spec.observation]`: the rows of the base rollouts (B * T), then each task's
            (B * T_i); "base": {"action" int32, "returns", "mask" float32, all `[B, T]`}; for each task, by its name,
            its targets with a leading batch axis and "mask" `[B, T_i]`.
          entropy: weight of the policy's entropy (beta).
          value_weight: weight of the value loss.
          log_epsilon: GA3C's epsilon inside the logarithms.

        Returns:
          The total, and scalars by metric name; `loss_<task>` is unweighted.
        """
        base = batch["base"]
        count = ops.shape(base["mask"])[0]
        features = self._split(self.features(batch["observations"]), count)
        outputs = self.policy_value(features[0].hidden)
        policy = losses.policy_gradient_loss(
            outputs["logits"], base["action"], base["returns"] - outputs["value"], base["mask"], log_epsilon
        )
        value = losses.value_loss(outputs["value"], base["returns"], base["mask"])
        policy_entropy = losses.entropy(outputs["logits"], base["mask"], log_epsilon)
        total = policy + value_weight * value - entropy * policy_entropy
        metrics = {
            "loss_base": total,
            "loss_policy": policy,
            "loss_value": value,
            "entropy": policy_entropy,
            "value_mean": losses.masked_mean(outputs["value"], base["mask"]),
        }
        for task, of_task in zip(self.tasks, features[1:], strict=True):
            loss = task.loss(self.task_outputs(task, of_task), batch[task.name])
            metrics[f"loss_{task.name}"] = loss
            total = total + task.weight * loss
        return total, {**metrics, "loss_total": total}

    def _split(self, features: Features, count: Any) -> list[Features]:
        """Cuts `[N, F]` into each part's `[count, length, F]`."""
        parts, start = [], 0
        for length in self.lengths:
            end = start + count * length
            parts.append(Features(*(ops.reshape(x[start:end], (-1, length, x.shape[-1])) for x in features)))
            start = end
        return parts


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Fixes what Keras's default initialisers, which plug-ins use, draw their seeds from: Python's global generator."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def _torso_sizes(kind: str, first_stride: int, hidden: int) -> list[tuple[int, ...]]:
    """Layers of a torso: convolutions (filters, kernel, stride), dense layers (units,)."""
    if kind == "small":
        return [(16, 8, 4), (32, 4, 2), (hidden,)]
    if kind == "large":
        return [(32, 8, first_stride), (32, 4, 2), (64, 4, 2), (hidden,)]
    if kind == "mlp":
        return [(hidden,), (hidden,)]
    raise ValueError(f"network {kind!r} is unknown; use small, large or mlp")


def _check_image(spec: Spec, convolutions: Sequence[tuple[int, ...]], kind: str) -> None:
    if not spec.is_image:
        raise ConfigError(f"the {kind} network needs images, not vectors of {spec.frame[0]}; use the mlp network")
    size = min(spec.frame[1:])
    for _, kernel, stride in convolutions:
        size = (size - kernel) // stride + 1 if size >= kernel else 0
    if size < 1:
        raise ConfigError(f"frames of {spec.frame} are too small for the {kind} network; use larger frames or the mlp")


def _dense(name: str, units: int, gain: float, seed: int, activation: str | None = None) -> Any:
    initializer = keras.initializers.Orthogonal(gain, seed)
    return keras.layers.Dense(units, activation, kernel_initializer=initializer, name=name)


def _torso(sizes: Sequence[tuple[int, ...]], activation: str, data_format: str, seed: int) -> list[Any]:
    layers = []
    for place, size in enumerate(sizes):
        if len(size) == 1:
            layers.append(_dense(f"fc{place + 1}", size[0], math.sqrt(2), seed + place, activation))
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
