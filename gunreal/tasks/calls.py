"""Calls of a task's methods in agent processes, with checks of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import calling
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Replay
from gunreal.experience.sequences import DRAWS, Drawn, Sequences, WeightedSequences
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import replay_size, synthetic_segment
from gunreal.learning.task import RESERVED, AuxiliaryTask

_DRY = 20  # sequences of a dry run


class TaskError(ConfigError):
    """A method of a task fails or returns something that it must not. The message is one line.

    In an agent process, it is told apart from a ConfigError of an environment.
    """


def target_arrays(
    task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None = None
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Finds the shape and dtype name of each array of `task.targets`, without its first axis, by a dry run.

    `bootstrap_shape` is that of one sequence's bootstrap, or None for a task without a bootstrap.

    Returns:
      Shape and dtype name, by the name of the array.

    Raises:
      TaskError: `task.sample` finds nothing or fails, or `task.targets` fails or returns something else than named
        arrays `[N, ...]` of numbers.
    """
    segment = synthetic_segment(spec, task.record(spec), replay_size(spec.t_max))
    replay = segment.replay(np.zeros(_DRY, int))
    sequences = sample(task, replay, np.random.default_rng(0).random((_DRY, DRAWS), np.float32))
    if not sequences.length.any():
        steps = replay.end - replay.oldest
        raise TaskError(f"task {task.name!r}: sample() found nothing in {steps} random steps")
    bootstraps = None if bootstrap_shape is None else np.zeros((_DRY, *bootstrap_shape), np.float32)
    return {
        name: (array.shape[1:], array.dtype.name)
        for name, array in targets(task, replay, sequences, bootstraps).items()
    }


def sample(task: AuxiliaryTask, replay: Replay, draws: np.ndarray) -> Drawn:
    """The result of `task.sample`, with `replay.oldest` as the first step of an agent without a sequence.

    Raises:
      TaskError: the method fails, or a sequence is too long or has steps that the replay does not hold.
    """
    name, count = f"task {task.name!r}", len(draws)
    if replay.end == replay.oldest:
        return Sequences(np.full(count, replay.oldest), np.zeros(count, int))
    with calling(f"{name}: sample()", TaskError):
        first, length, *weights = (np.asarray(part) for part in task.sample(replay, draws))
        if not first.shape == length.shape == (count,) or not first.dtype.kind == length.dtype.kind == "i":
            kinds = f"{first.dtype} {list(first.shape)} and {length.dtype} {list(length.shape)}"
            raise TaskError(f"{name}: sample() returns {kinds}; return first steps and lengths, int [{count}]")
        limit = task.length(replay.spec.t_max)
        if (wrong := (length < 0) | (length > limit)).any():
            raise TaskError(f"{name}: sample() returns {length[wrong][0]} steps, but length() allows 0 to {limit}")
        first = np.where(length > 0, first, replay.oldest)
        if (wrong := (first < replay.oldest) | (first + length > replay.end)).any():
            steps = f"{first[wrong][0]} to {(first + length)[wrong][0] - 1}"
            held = f"{replay.oldest} to {replay.end - 1}"
            raise TaskError(f"{name}: sample() returns steps {steps}, but the replay holds steps {held}")
        for weight in weights:
            kind = f"{weight.dtype} {list(weight.shape)}"
            if kind != f"float32 [{count}]" or not (np.isfinite(weight) & (weight >= 0)).all():
                fix = f"return finite ones of 0 or more, float32 [{count}]"
                raise TaskError(f"{name}: sample() returns unusable weights ({kind}); {fix}")
    if weights:
        return WeightedSequences(first, length, np.where(length > 0, weights[0], np.float32(0)))
    return Sequences(first, length)


def targets(
    task: AuxiliaryTask, replay: Replay, sequences: Drawn, bootstraps: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The result of `task.targets`, with the "weight" of the sequences if they have any.

    Raises:
      TaskError: the method fails, or returns something else than named arrays `[N, ...]` of numbers.
    """
    with calling(f"task {task.name!r}: targets()", TaskError):
        found = task.targets(replay, Sequences(*sequences[:2]), bootstraps)
        if not isinstance(found, Mapping):
            raise TaskError(f"task {task.name!r}: targets() returns a {type(found).__name__}; return a dict of arrays")
        for name, array in found.items():
            _check(f"task {task.name!r}: target {name!r}", name, array, len(sequences.first))
    return dict(found) | ({"weight": sequences.weight} if isinstance(sequences, WeightedSequences) else {})


def _check(which: str, name: str, array: Any, count: int) -> None:
    if name in RESERVED:
        raise TaskError(f"{which} has a reserved name; choose another name")
    if not isinstance(array, np.ndarray):
        raise TaskError(f"{which} is of type {type(array).__name__}; return an array of replay.xp")
    if array.shape[:1] != (count,):
        raise TaskError(f"{which} has the shape {list(array.shape)}; return one row for each of {count} agents")
    if array.dtype == np.float64:  # losses are float32, and TensorFlow does not mix them
        raise TaskError(f"{which} is float64; return float32")
    if array.dtype.kind not in "biuf":
        raise TaskError(f"{which} is {array.dtype}; return numbers")


def write_targets(
    task: AuxiliaryTask,
    replay: Replay,
    sequences: Drawn,
    bootstraps: np.ndarray | None,
    out: Mapping[str, np.ndarray],
) -> None:
    """Writes the result of `task.targets` to `out`, which has the names and shapes of the dry run.

    `out` has the axes `[agents, sequences of each]` instead of N.

    Raises:
      TaskError: as `targets`, or names or shapes vary.
    """
    found = targets(task, replay, sequences, bootstraps)
    if found.keys() != out.keys():
        raise TaskError(f"task {task.name!r}: names of targets vary ({sorted(found)} and {sorted(out)})")
    for name, array in out.items():
        if found[name].shape[1:] != array.shape[2:]:
            shapes = f"{list(found[name].shape[1:])} and {list(array.shape[2:])}"
            raise TaskError(f"task {task.name!r}: shapes of target {name!r} vary ({shapes}); use fixed shapes")
        array[...] = found[name].reshape(array.shape)
