"""The tasks of a device run: sequences from the store, and what their losses need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.device import rollouts, store
from gunreal.experience.replay import RESET
from gunreal.experience.spec import Spec
from gunreal.tasks.base import DRAWS, AuxiliaryTask
from gunreal.tasks.batched import BatchReplay


def gather(
    tasks: Sequence[AuxiliaryTask],
    spec: Spec,
    size: int,
    predict: Any,
    weights: Any,
    kept: store.Store,
    group: Any,
    key: Any,
) -> rollouts.Batch:
    """The tasks' entries of the batch of `Network.loss`, with one sequence of each agent of a group for each task.

    Args:
      tasks: the tasks.
      spec: shapes and constants.
      size: number of steps that a task may sample from.
      predict: `JaxLearner.functional_predict`.
      weights: the current weights, for the bootstraps.
      kept: the steps.
      group: number of the group.
      key: random key of the draws.

    Returns:
      "observations" and "past", each by the names of the tasks, and the targets of each task.
    """
    batch: rollouts.Batch = {"observations": {}, "past": {}}
    whole = replay(kept, spec, size, group)
    for number, task in enumerate(tasks):
        of_task = jax.random.fold_in(key, number)
        batch[task.name], steps = _targets(task, whole, predict, weights, kept, group, of_task)
        batch["observations"][task.name] = store.observations(kept, spec, group, steps)
        if spec.state and task.features != "conv":
            batch["past"][task.name] = rollouts.past(kept, spec, group, steps)
    return batch


def replay(kept: store.Store, spec: Spec, size: int, group: Any) -> BatchReplay:
    """The replays of a group. The newest row of the store is the state after their newest sequence."""
    end = kept["end"] - 1
    oldest = jnp.maximum(end - size, kept["start"])
    return BatchReplay(lambda name, steps: _read(kept, name, group, steps), spec, size, end, oldest)


def _read(kept: store.Store, name: str, group: Any, steps: Any) -> Any:
    """Steps of one array as a task reads them, with the types of `gunreal.experience.replay.Replay.get`."""
    if name == "version":  # all agents act together, so the store has it without their axis
        version = kept[name][steps % len(kept[name])]
        return jnp.broadcast_to(version, (kept["age"].shape[2], steps.shape[1]))
    found = store.take(kept, name, group, steps)
    return jnp.minimum(found, 255).astype("uint8") if name == "age" else found


def _targets(
    task: AuxiliaryTask, replay: BatchReplay, predict: Any, weights: Any, kept: store.Store, group: Any, key: Any
) -> tuple[dict[str, Any], Any]:
    """The targets with the mask, and the steps `[n, T]` of the sequences."""
    assert task.targets_batch is not None
    spec = replay.spec
    draws = jax.random.uniform(key, (kept["age"].shape[2], DRAWS))
    first, length = sequences = task.sample_batch(replay, draws)
    bootstraps = None
    if task.bootstrap is not None:
        after = (first + length)[:, None]
        past = rollouts.past(kept, spec, group, after) if spec.state else None
        observations = store.observations(kept, spec, group, after)[:, 0]
        (bootstraps,) = predict(weights, observations, past, task.name)
    rows = jnp.arange(task.length(spec.t_max))
    steps = first[:, None] + jnp.minimum(rows, jnp.maximum(length, 1)[:, None] - 1)  # padding repeats the last step
    flags = store.take(kept, "flags", group, steps)
    mask = (rows < length[:, None]) & (flags & RESET == 0)
    return {**task.targets_batch(replay, sequences, bootstraps), "mask": mask.astype("float32")}, steps
