"""Training batches from the store: the rollouts of a group of agents, and the inputs of their objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.device.acting import Actors, with_time_axis
from gunreal.device.store import Store, read
from gunreal.experience.replay import observations, past
from gunreal.experience.rollouts import read_rollouts
from gunreal.experience.spec import Spec
from gunreal.learning.task import acting_head
from gunreal.objectives.base import Objective

Batch = dict[str, Any]


def gather(
    objective: Objective, spec: Spec, predict: Any, weights: Any, actors: Actors, store: Store, group: Any
) -> Batch:
    """The newest rollout of each agent of a group, as the objective's part of a batch.

    The batch is that of `Network.loss`, except that "observations" is a dict of arrays `[n, T, *spec.observation]` by
    the names of the parts. Steps before the start of the run have mask 0.

    Args:
      objective: the objective.
      spec: shapes and constants.
      predict: `JaxLearner.functional_predict`.
      weights: the current weights, for the values of the states after the rollouts.
      actors: the agents after the newest step of the store.
      store: the steps.
      group: number of the group.
    """
    steps = (store["end"] - spec.t_max + jnp.arange(spec.t_max))[None]
    groups = store["age"].shape[1]
    of_group = jax.tree.map(
        lambda x: x.reshape(-1, groups, *x.shape[1:])[:, group], (actors.stack, with_time_axis(actors.past))
    )
    _, value, *more = predict(weights, *of_group, acting_head(spec))
    rows = read(store, group)
    bonus = more[0] if spec.bonus else None
    base = objective.prepared(objective.part(read_rollouts(spec, rows, steps, value, bonus)))
    batch = {"observations": {"base": observations(rows, spec, steps)}, "base": base}
    batch["past"] = {"base": past(rows, spec, steps)} if spec.state else {}
    return batch


def flat(batch: Batch, names: Sequence[str]) -> Batch:
    """A batch whose observations are one array with one leading axis, as the network takes them.

    Args:
      batch: the batch.
      names: names of all parts, in the order of the network. The order in `batch` does not count, because JAX sorts
        the keys of the dicts that a compiled program takes and returns.
    """
    found = [batch["observations"][name] for name in names if name in batch["observations"]]
    parts = [part.reshape(-1, *part.shape[2:]) for part in found]
    flattened = {**batch, "observations": jnp.concatenate(parts)}
    return flattened if batch["past"] else {name: part for name, part in flattened.items() if name != "past"}


def merged(batch: Batch, of_tasks: Batch) -> Batch:
    """The batch of the objective with the parts of the tasks."""
    return {**of_tasks, **batch, **{name: batch[name] | of_tasks[name] for name in ("observations", "past")}}


def without_tasks(batch: Batch) -> Batch:
    """The part of a batch that the objective learns from."""
    kept = {name: batch[name] for name in ("base", "old") if name in batch}
    return kept | {
        name: {key: x for key, x in batch[name].items() if key == "base"} for name in ("observations", "past")
    }


def minibatch(batch: Batch, taken: Any) -> Batch:
    """The rollouts `taken` (int `[n]`) of a batch."""
    return jax.tree.map(lambda x: x[taken], batch)
