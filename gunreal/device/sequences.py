"""The tasks of a device run: sequences from the store, and what their losses need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.config.plugins import calling
from gunreal.device import rollouts, store
from gunreal.experience.replay import Read, Replay, inputs, observations, past
from gunreal.experience.sequences import DRAWS, Sequences, steps_and_mask
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask


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
    """The parts of the tasks in a batch of `Network.loss`: sequences of the newest `size` steps of a group's agents."""
    batch: rollouts.Batch = {}
    for number, task in enumerate(tasks):
        times = task.per_rollout
        whole, read = replay(kept, spec, size, group, times), store.read(kept, group, times)
        draws = jax.random.uniform(jax.random.fold_in(key, number), (kept["age"].shape[2] * times, DRAWS))
        targets, steps = _targets(task, whole, predict, weights, read, draws)
        batch[task.name] = targets | inputs(read, spec, steps)
        if task.prioritized:
            batch[task.name]["cell"] = store.cells(kept, steps, times)
    return batch


def replay(kept: store.Store, spec: Spec, size: int, group: Any, times: int = 1) -> Replay:
    """The replays of a group, `times` for each agent.

    The newest row of the store is the state after their newest sequence.
    """
    end = kept["end"] - 1
    oldest = jnp.maximum(end - size, kept["start"])
    names = [name for name, array in kept.items() if array.ndim]

    def read(name: str, steps: Any) -> Any:
        found = store.take(kept, name, group, steps, times)
        return jnp.minimum(found, 255).astype("uint8") if name == "age" else found

    return Replay(read, jnp, spec, size, end, oldest, names)


def _targets(
    task: AuxiliaryTask, replay: Replay, predict: Any, weights: Any, read: Read, draws: Any
) -> tuple[dict[str, Any], Any]:
    """The targets with the mask, and the steps `[n, T]` of the sequences."""
    spec = replay.spec
    with calling(f"task {task.name!r}: sample() in JAX"):
        first, length, *weight = task.sample(replay, draws)
    first = jnp.where(length > 0, first, replay.oldest)
    bootstraps = None
    if task.bootstrap is not None:
        after = (first + length)[:, None]
        known = past(read, spec, after)
        (bootstraps,) = predict(weights, observations(read, spec, after)[:, 0], known, task.name)
    sequences = Sequences(first, length)
    steps, mask = steps_and_mask(read, sequences, task.length(spec.t_max))
    with calling(f"task {task.name!r}: targets() in JAX"):
        found = {**task.targets(replay, sequences, bootstraps), "mask": mask}
    return found | ({"weight": jnp.where(length > 0, weight[0], 0)} if weight else {}), steps
