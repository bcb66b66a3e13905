"""Calls of a task's methods that check the results, and the shapes of its targets, found by a dry run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from gunreal.config.plugins import calling, failed
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Replay
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import replay_size, synthetic_segment
from gunreal.learning.task import RESERVED
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence


class TaskError(ConfigError):
    """A method of a task fails or returns something that it must not. The message is one line."""


def target_arrays(
    task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None = None
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Finds the shape and dtype name of each array of `task.targets` by calling it on random sequences.

    Args:
      task: the task.
      spec: interface of the environment.
      bootstrap_shape: shape of one sequence's bootstrap, or None for a task without a bootstrap.

    Returns:
      Shape and dtype name, by the name of the array.

    Raises:
      ConfigError: `task.sample` finds nothing or fails, or `task.targets` returns something other than named arrays of
        fixed shapes.
    """
    bootstrap = None if bootstrap_shape is None else np.zeros(bootstrap_shape, np.float32)
    rng = np.random.default_rng(0)
    replay = synthetic_segment(spec, task.record(spec), replay_size(spec.t_max)).agent(0)
    draws = (draw(task, replay, rng) for _ in range(100))
    sequences = list(itertools.islice((found for found in draws if found is not None), 20))
    if not sequences:
        raise ConfigError(f"task {task.name!r}: sample() found nothing in {len(replay)} random steps")
    given = "" if bootstrap is None else f" with a bootstrap of shape {bootstrap_shape}"
    with calling(f"task {task.name!r}: targets(){given}"):
        first, *others = (_kinds(task, task.targets(replay, sequence, bootstrap)) for sequence in sequences)
    for other in others:
        if other != first:
            raise ConfigError(
                f"task {task.name!r}: targets() gives {first} and {other}; pad to fixed shapes with pad()"
            )
    return first


def _kinds(task: AuxiliaryTask, targets: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    _check_arrays(task, targets)
    for name, array in targets.items():
        if name in RESERVED:
            raise ConfigError(f"task {task.name!r}: target {name!r} has a reserved name; choose another name")
        if array.dtype == np.float64:  # losses are float32, and TensorFlow does not mix them
            raise ConfigError(f"task {task.name!r}: target {name!r} is float64; return float32")
        if array.dtype.kind not in "biuf":
            raise ConfigError(f"task {task.name!r}: target {name!r} is {array.dtype}; return numbers")
    return {name: (array.shape, array.dtype.name) for name, array in targets.items()}


def _check_arrays(task: AuxiliaryTask, targets: Any) -> None:
    if not isinstance(targets, Mapping):
        kind = type(targets).__name__
        raise ConfigError(f"task {task.name!r}: targets() returns a {kind}; return a dict of NumPy arrays")
    for name, array in targets.items():
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            raise ConfigError(f"task {task.name!r}: target {name!r} is of type {kind}; return a NumPy array")


def _fail(task: AuxiliaryTask, method: str, error: Exception) -> NoReturn:
    """Raises any error as a TaskError, so that nobody takes it for a ConfigError of an environment."""
    raise TaskError(failed(f"task {task.name!r}: {method}()", error)) from error


def draw(task: AuxiliaryTask, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
    """The result of `task.sample`.

    Raises:
      TaskError: the method fails, or the sequence is too long or has steps that the replay does not hold.
    """
    try:
        found = task.sample(replay, rng)
        if found is None:
            return None
        first, length = found
        limit = task.length(replay.spec.t_max)
        if not 1 <= length <= limit:
            raise ConfigError(f"task {task.name!r}: sample() returns {length} steps, but length() allows 1 to {limit}")
        if first < replay.oldest or first + length > replay.end:
            raise ConfigError(
                f"task {task.name!r}: sample() returns steps {first} to {first + length - 1}, but the replay holds "
                f"steps {replay.oldest} to {replay.end - 1}"
            )
    except Exception as error:  # noqa: BLE001  a task can raise anything
        _fail(task, "sample", error)
    return ReplaySequence(first, length)


def write_targets(
    task: AuxiliaryTask,
    replay: Replay,
    sequence: ReplaySequence,
    bootstrap: np.ndarray | None,
    out: Mapping[str, np.ndarray],
) -> None:
    """Writes the result of `task.targets` to `out`, which has the names and shapes of the dry run.

    Raises:
      TaskError: the method fails, or names or shapes vary.
    """
    try:
        targets = task.targets(replay, sequence, bootstrap)
        _check_arrays(task, targets)
        if targets.keys() != out.keys():
            raise ConfigError(f"task {task.name!r}: names of targets vary ({sorted(targets)} and {sorted(out)})")
        for name, array in out.items():
            if targets[name].shape != array.shape:
                shapes = f"{list(targets[name].shape)} and {list(array.shape)}"
                raise ConfigError(f"task {task.name!r}: shapes of target {name!r} vary ({shapes}); use pad()")
            array[...] = targets[name]
    except Exception as error:  # noqa: BLE001  a task can raise anything
        _fail(task, "targets", error)
