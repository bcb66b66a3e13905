"""DQN in device runs: batches from the replay with double n-step targets, and optionally with priorities.

Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Schaul et al. 2016 (priorities), Hessel et al. 2018 (n steps).
Sequences of steps are drawn instead of single ones, as in Kapturowski et al. 2019 (R2D2, section 2.3), so that one pass
of the network serves the values of all steps of a sequence.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from gunreal.device import rollouts, sequences, store
from gunreal.experience.replay import RESET, Past, past
from gunreal.experience.sequences import DRAWS, LEAST_PRIORITY, prioritized_sequences, uniform_sequences
from gunreal.experience.spec import Spec
from gunreal.objectives.dqn import Dqn

_CORRECTION = 0.6  # exponent of the importance weights (R2D2)


def gather(
    objective: Dqn,
    spec: Spec,
    size: int,
    predict: Any,
    weights: Any,
    target: Any,
    kept: store.Store,
    group: Any,
    key: Any,
) -> tuple[rollouts.Batch, Any, dict[str, Any]]:
    """A batch with one sequence of each agent of a group, from its newest `size` steps.

    Returns:
      The batch as that of `rollouts.gather`, the number of updates before each of its steps (int32 `[n * T]`, -1 where
      the mask is 0), and the arrays of the store that change.
    """
    replay = sequences.replay(kept, spec, size, group)
    draws, t_max = jax.random.uniform(key, (kept["age"].shape[2], DRAWS)), spec.t_max
    if objective.priority:
        first, length, weight = prioritized_sequences(replay, draws, "base", objective.priority)
    else:
        first, length = uniform_sequences(replay, draws)
    rows = jnp.arange(t_max + 1)
    steps = first[:, None] + jnp.minimum(rows, length[:, None])  # with the state after the sequence
    observations = replay.observations(steps)
    count, known = steps.size, past(store.read(kept, group), spec, steps)
    each = known and Past(jnp.zeros((count, 0)), *(x.reshape(count, 1, *x.shape[2:]) for x in known[1:]))
    flat = observations.reshape(-1, *spec.observation)
    q_online = predict(weights, flat, each)[0].reshape(*steps.shape, -1)
    q_target = predict(target, flat, each)[0].reshape(*steps.shape, -1)
    best = (q_online if objective.double else q_target).argmax(-1)
    values = jnp.take_along_axis(q_target, best[..., None], -1)[..., 0]
    discount = replay.discounts(first, t_max, spec.discount)
    returns = n_step_targets(replay.rewards(first, t_max), discount, values, length, objective.steps)
    action = replay.get("action", first, t_max)
    mask = (rows[:-1] < length[:, None]) & (replay.get("flags", first, t_max) & RESET == 0)
    base = {"action": action, "mask": mask.astype("float32"), "q_target": returns}
    changed = {}
    if objective.priority:
        weight = weight**_CORRECTION
        base["weight"] = weight / jnp.maximum(weight.max(), LEAST_PRIORITY)
        taken = jnp.take_along_axis(q_online[:, :-1], action[..., None], -1)[..., 0]
        cell = store.cells(kept, steps[:, :-1])
        changed["base.priority"] = store.report(kept, "base", group, cell, jnp.abs(returns - taken), mask)
    acted = jnp.where(mask, kept["version"][steps[:, :-1] % len(kept["version"])], -1)
    if known:
        base["past"] = Past(known.state, *(x[:, :-1] for x in known[1:]))
    return {"base": base | {"observations": observations[:, :-1]}}, acted.ravel(), changed


def n_step_targets(reward: Any, discount: Any, values: Any, length: Any, count: int) -> Any:
    """Returns of `count` steps, or of fewer at the end of a sequence, float32 `[n, T]`.

    Args:
      reward: clipped rewards, float32 `[n, T]`.
      discount: discount of each step, float32 `[n, T]`, 0 if it terminated the episode.
      values: value of the state before each step and after the last one, float32 `[n, T + 1]`.
      length: number of steps of each sequence, int32 `[n]`.
      count: number of steps of a return.
    """
    steps, last = jnp.arange(reward.shape[1]), length[:, None]
    returns = jnp.take_along_axis(values, jnp.minimum(steps + count, last), 1)
    for ahead in reversed(range(count)):
        at = jnp.minimum(steps + ahead, reward.shape[1] - 1)
        returns = jnp.where(steps + ahead < last, reward[:, at] + discount[:, at] * returns, returns)
    return returns
