"""The heads of the auxiliary tasks. An error in a method of a task is one line that names the task and the place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from gunreal.config.plugins import calling
from gunreal.config.schema import ConfigError
from gunreal.experience.spec import Spec
from gunreal.learning.losses import masked_mean
from gunreal.learning.task import AuxiliaryTask
from gunreal.learning.torso import Features

_NOISE = (
    keras.layers.Dropout,
    keras.layers.AlphaDropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
)


def build(task: AuxiliaryTask, spec: Spec, features: Features) -> Any:
    """The layer of a task with its weights, for symbolic features `[..., F]`, or None for a task without one.

    Raises:
      ConfigError: the layer cannot be made or used.
    """
    with calling(f"task {task.name!r}: head()"):
        head = task.head(spec)
        if head is None:
            return None
        if not isinstance(head, keras.Layer):
            raise ConfigError(f"task {task.name!r}: head() returned {head!r}; return a Keras layer or None")
        length = task.length(spec.t_max)
        head(seen(task, Features(*(keras.KerasTensor((None, length, x.shape[-1])) for x in features))))
    check_stateless(f"the head of task {task.name!r}", head)
    return head


def check_stateless(name: str, layer: Any) -> None:
    """Raises ConfigError if a layer has state that gradients do not train, or noise, which would never be active."""
    if noise := [part.name for part in layer._flatten_layers() if _is_noisy(part)]:
        raise ConfigError(f"{name} has noise ({', '.join(noise)}); leave it out, because outputs must be deterministic")
    if layer.non_trainable_weights:
        names = ", ".join(variable.path for variable in layer.non_trainable_weights)
        raise ConfigError(f"{name} has untrained state ({names}); use layers without state")


def _is_noisy(layer: Any) -> bool:
    """Also recurrent cells and attention with dropout."""
    return isinstance(layer, _NOISE) or any(getattr(layer, name, 0) for name in ("dropout", "recurrent_dropout"))


def check_average(task: AuxiliaryTask, head: Any) -> None:
    """Raises ConfigError if the averages of a task have an impossible rate or if nothing uses them."""
    if not 0 < task.average <= 1:
        raise ConfigError(f"task {task.name!r}: average is {task.average}, but must be above 0 and at most 1")
    if head is None or "net" not in _arguments(head):
        raise ConfigError(f"task {task.name!r} has averages, but no head whose call() has an argument net to use them")


def _arguments(head: Any) -> Collection[str]:
    return inspect.signature(head.call).parameters


def outputs(task: AuxiliaryTask, head: Any, features: Features, **given: Any) -> Any:
    """The outputs `[B, T, ...]` of a head for features `[B, T, F]`.

    In an update, its "batch" and the `Net` "net" are given. Heads get those of them that they ask for.
    """
    asked = {name: value for name, value in given.items() if name in _arguments(head)}
    with calling(f"the head of task {task.name!r}"):
        found = head(seen(task, features), **asked)
    return keras.tree.map_structure(lambda x: ops.cast(x, "float32"), found)


def bootstrap(task: AuxiliaryTask, found: Any) -> Any:
    """The bootstraps `[N, ...]` for the outputs of a task for N single steps. Raises ConfigError."""
    assert task.bootstrap is not None
    with calling(f"task {task.name!r}: bootstrap()"):
        values = task.bootstrap(found)
    if not tuple(getattr(values, "shape", ())):
        raise ConfigError(f"task {task.name!r}: bootstrap() returns a single number; return one for each of its inputs")
    return values


def bonus(task: AuxiliaryTask, found: Any, observations: Any, known: Mapping[str, Any]) -> Any:
    """The bonuses `[N]` for N observations, from the outputs and the state of a task. Raises ConfigError."""
    assert task.bonus is not None
    with calling(f"task {task.name!r}: bonus()"):
        values = task.bonus(found, observations, known)
    if len(shape := tuple(getattr(values, "shape", ()))) != 1:
        raise ConfigError(f"task {task.name!r}: bonus() returns shape {shape}; return one number for each observation")
    return ops.cast(values, "float32")


def state(task: AuxiliaryTask, spec: Spec) -> dict[str, Any]:
    """The arrays of a task that gradients do not train, as Keras variables by name. Raises ConfigError."""
    with calling(f"task {task.name!r}: state()"):
        arrays = {name: ops.convert_to_numpy(array) for name, array in task.state(spec).items()}
    for name, array in arrays.items():
        if array.dtype.name not in ("float32", "int32", "bool"):
            raise ConfigError(f"task {task.name!r}: {name!r} of state() is {array.dtype}; use float32, int32 or bool")
        if not np.isfinite(array).all():
            raise ConfigError(f"task {task.name!r}: {name!r} of state() is not finite")
    make = functools.partial(keras.Variable, trainable=False, autocast=False)
    return {name: make(array, dtype=array.dtype.name, name="state") for name, array in arrays.items()}


def loss(task: AuxiliaryTask, found: Any, targets: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The unweighted loss of a task for its outputs, a scalar; its own metrics; its new state. Raises ConfigError."""
    with calling(f"task {task.name!r}: loss()"):
        value = task.loss(found, targets)
    own: Any = {}
    new: Any = {}
    if isinstance(value, tuple) and len(value) in (2, 3) and all(isinstance(part, Mapping) for part in value[1:]):
        value, own, new = (*value, {}, {})[:3]
    _check_scalar(f"task {task.name!r}: loss()", value)
    own = dict(own)
    priorities = _priorities(task, own.pop("priority", None), targets["mask"]) if task.prioritized else {}
    for name, metric in own.items():
        _check_scalar(f"task {task.name!r}: the metric {name!r} of loss()", metric)
    metrics = {f"{task.name}_{name}": ops.stop_gradient(ops.cast(x, "float32")) for name, x in own.items()}
    kept = {name: _kept(task, name, x, targets.get("state", {})) for name, x in new.items()}
    return value, metrics | priorities, kept


def _priorities(task: AuxiliaryTask, given: Any, mask: Any) -> dict[str, Any]:
    """The mean priority as a metric, and those of all steps `[B, T]` as "priority/<task>". Raises ConfigError."""
    if not ops.is_tensor(given) or len(given.shape) not in (1, 2):
        raise ConfigError(
            f"task {task.name!r} is prioritized, but loss() returns no metric 'priority' of shape [B] or [B, T]; add it"
        )
    with calling(f"task {task.name!r}: the priority of loss()"):
        given = ops.stop_gradient(ops.cast(given, "float32"))
        steps = (given if len(given.shape) == 2 else ops.expand_dims(given, 1)) * ops.ones_like(mask)
        return {f"{task.name}_priority": masked_mean(steps, mask), f"priority/{task.name}": steps}


def _kept(task: AuxiliaryTask, name: str, array: Any, known: Mapping[str, Any]) -> Any:
    """A new array of a task's state, if it fits the one that it replaces."""
    where = f"task {task.name!r}: loss() returns the state {name!r}"
    if name not in known:
        raise ConfigError(f"{where}, which state() does not have; it has {', '.join(known) or 'none'}")
    array = ops.convert_to_tensor(array)
    one, other = ((tuple(x.shape), keras.backend.standardize_dtype(x.dtype)) for x in (array, known[name]))
    if one != other:
        raise ConfigError(f"{where} as {one[1]} {list(one[0])}; keep it {other[1]} {list(other[0])}")
    return ops.stop_gradient(array)


def _check_scalar(name: str, value: Any) -> None:
    """Raises ConfigError if a method of a task returns anything but a scalar of the framework."""
    if not keras.ops.is_tensor(value):
        given = "nothing" if value is None else f"a {type(value).__name__}"
        raise ConfigError(f"{name} returns {given}; return a scalar, computed with keras.ops")
    if shape := tuple(value.shape):
        raise ConfigError(f"{name} returns shape {shape}; return a scalar")


def seen(task: AuxiliaryTask, features: Features) -> Any:
    """The features that the head of a task uses."""
    return features if task.features == "both" else getattr(features, task.features)
