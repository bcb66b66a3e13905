"""Training batches from the store: the rollouts of a group of agents, and the inputs of their objective."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from gunreal.device.acting import Actors, with_time_axis
from gunreal.device.store import Store, read
from gunreal.experience.replay import inputs
from gunreal.experience.rollouts import read_rollouts
from gunreal.experience.spec import Spec
from gunreal.learning.objective import Objective
from gunreal.learning.task import acting_head

Batch = dict[str, Any]


def gather(
    objective: Objective, spec: Spec, predict: Any, weights: Any, actors: Actors, store: Store, group: Any
) -> Batch:
    """The newest rollout of each agent of a group, as the objective's part of a batch.

    It is the part "base" of `Network.loss`. Steps before the start of the run have mask 0. The values of the
    states after the rollouts, which the agents are in, are predicted with the present weights.
    """
    steps = (store["end"] - spec.t_max + jnp.arange(spec.t_max))[None]
    groups = store["age"].shape[1]
    of_group = jax.tree.map(
        lambda x: x.reshape(len(x) // groups, groups, *x.shape[1:])[:, group],
        (actors.stack, with_time_axis(actors.past)),
    )
    predicted, rows = predict(weights, *of_group, acting_head(spec)), read(store, group)
    after = dict(zip(("value", *spec.bonuses), predicted[1:], strict=False))  # without a recurrent state
    base = objective.prepared(objective.part(read_rollouts(spec, rows, steps, after)))
    return {"base": base | inputs(rows, spec, steps)}
