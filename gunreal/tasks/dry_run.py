"""The shapes of a task's targets, found by a dry run on random experience."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import calling
from gunreal.config.schema import ConfigError
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import replay_size, synthetic_segment
from gunreal.tasks.base import AuxiliaryTask


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
      ConfigError: `task.sample` finds nothing, or `task.targets` returns something other than named arrays of fixed
        shapes.
    """
    bootstrap = None if bootstrap_shape is None else np.zeros(bootstrap_shape, np.float32)
    rng = np.random.default_rng(0)
    replay = synthetic_segment(spec, task.record(spec), replay_size(spec.t_max)).agent(0)
    draws = (task.sample(replay, rng) for _ in range(100))
    sequences = list(itertools.islice((draw for draw in draws if draw is not None), 20))
    if not sequences:
        raise ConfigError(f"task {task.name!r}: sample() found nothing in {len(replay)} random steps")
    given = "" if bootstrap is None else f" with a bootstrap of shape {bootstrap_shape}"
    with calling(f"task {task.name!r}: targets(){given}"):
        first, *others = (_arrays(task, task.targets(replay, sequence, bootstrap)) for sequence in sequences)
    for other in others:
        if other != first:
            raise ConfigError(
                f"task {task.name!r}: targets() gives {first} and {other}; pad to fixed shapes with pad()"
            )
    return first


def _arrays(task: AuxiliaryTask, targets: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    arrays = isinstance(targets, Mapping) and all(isinstance(array, np.ndarray) for array in targets.values())
    if not arrays or "mask" in targets:
        raise ConfigError(f"task {task.name!r}: targets() must return NumPy arrays by name, and none may be 'mask'")
    for name, array in targets.items():
        if array.dtype == np.float64:  # losses are float32, and TensorFlow does not mix them
            raise ConfigError(f"task {task.name!r}: target {name!r} is float64; return float32")
        if array.dtype.kind not in "biuf":
            raise ConfigError(f"task {task.name!r}: target {name!r} is {array.dtype}; return numbers")
    return {name: (array.shape, array.dtype.name) for name, array in targets.items()}
