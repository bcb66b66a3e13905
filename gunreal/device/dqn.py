"""DQN in device runs: batches from the replay with double n-step targets, and optionally with priorities.

Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Schaul et al. 2016 (priorities), Hessel et al. 2018 (n steps).
Sequences of steps are drawn instead of single ones, as in Kapturowski et al. 2019 (R2D2, section 2.3), so that one pass
of the network serves the values of all steps of a sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from gunreal.device import rollouts, sequences, store
from gunreal.experience.replay import RESET, TRUNCATED, Past, Replay, past
from gunreal.experience.sequences import DRAWS, Sequences, uniform_sequences
from gunreal.experience.spec import Spec
from gunreal.objectives.dqn import Dqn

_CORRECTION = 0.6  # exponent of the importance weights (R2D2)
_MAXIMUM = 0.9  # share of the largest error in the priority of a sequence, the rest is the mean (R2D2, section 2.3)
_LEAST = 1e-3  # priority of sequences without errors


class Drawn(NamedTuple):
    """Sequences with their importance weights, float32 `[n]`."""

    sequences: Sequences
    weight: Any


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
    """A batch with one sequence of each agent of a group.

    Args:
      objective: the objective with its options.
      spec: shapes and constants.
      size: number of steps of each agent to draw from.
      predict: `JaxLearner.functional_predict`, whose logits are the Q values.
      weights: the current weights.
      target: the weights of the target network.
      kept: the steps.
      group: number of the group.
      key: random key of the draws.

    Returns:
      The batch as that of `rollouts.gather`, the number of updates before each of its steps (int32 `[n * T]`, -1 where
      the mask is 0), and the arrays of the store that change.
    """
    replay = sequences.replay(kept, spec, size, group)
    drawn = _draw(objective, replay, jax.random.uniform(key, (kept["age"].shape[2], DRAWS)))
    (first, length), t_max = drawn.sequences, spec.t_max
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
        base["weight"] = drawn.weight
        taken = jnp.take_along_axis(q_online[:, :-1], action[..., None], -1)[..., 0]
        changed = _errors(kept, group, first, jnp.abs(returns - taken), mask)
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


def _draw(objective: Dqn, replay: Replay, draws: Any) -> Drawn:
    """One sequence of each agent, drawn uniformly or by priority."""
    if not objective.priority:
        return Drawn(uniform_sequences(replay, draws), jnp.ones(len(draws)))
    allowed = (replay.window("flags") & RESET == 0) & (replay.steps >= replay.oldest)
    priority = sequence_priorities(replay.window("error"), replay.window("flags"), replay.spec.t_max)
    share = jnp.where(allowed, priority**objective.priority, 0.0)
    # Parallel sums can differ by rounding where nothing is added. A step without a share must not be drawn for that.
    sums = jnp.where(share > 0, jnp.cumsum(share, axis=1), 0.0)
    total = sums.max(axis=1, keepdims=True)
    index = jnp.argmax(sums > draws[:, :1] * total, axis=1)
    first = replay.end - replay.size + index
    full = replay.end - replay.oldest >= replay.spec.t_max
    length = jnp.where(full, replay.sequence_length(first, replay.spec.t_max), 0)
    chance = jnp.take_along_axis(share, index[:, None], 1)[:, 0] / jnp.maximum(total[:, 0], 1e-9)
    weight = (1.0 / jnp.maximum(allowed.sum(1) * chance, 1e-9)) ** _CORRECTION
    return Drawn(Sequences(first, length), weight / weight.max())


def sequence_priorities(error: Any, flags: Any, t_max: int) -> Any:
    """The priority of the sequence that starts at each step, float32 `[n, T]`, from the latest errors of its steps.

    Args:
      error: absolute error of each step, float32 `[n, T]`. That of a RESET step does not count.
      flags: flags of each step, uint8 `[n, T]`.
      t_max: number of steps of a sequence. A truncated step or the last of the T steps ends it earlier.
    """
    learned = flags & RESET == 0
    missing = (0, 0), (0, t_max)
    error, learned = jnp.pad(jnp.where(learned, error, 0.0), missing), jnp.pad(learned, missing)
    cut = jnp.pad(flags & TRUNCATED != 0, missing)

    def add(ahead: Any, found: tuple[Any, ...]) -> tuple[Any, ...]:
        most, total, count, inside = found
        new, counts, ends = (
            jax.lax.dynamic_slice_in_dim(x, ahead, flags.shape[1], axis=1) for x in (error, learned, cut)
        )
        new = jnp.where(inside, new, 0.0)
        return jnp.maximum(most, new), total + new, count + (inside & counts), inside & ~ends

    zeros = jnp.zeros(flags.shape, "float32")
    most, total, count, _ = jax.lax.fori_loop(0, t_max, add, (zeros, zeros, zeros, jnp.ones(flags.shape, bool)))
    return _LEAST + _MAXIMUM * most + (1 - _MAXIMUM) * total / jnp.maximum(count, 1.0)


def _errors(kept: store.Store, group: Any, first: Any, error: Any, mask: Any) -> dict[str, Any]:
    """The errors of the store after those of the drawn sequences have been set, `[n, T]`."""
    row = (first[:, None] + jnp.arange(error.shape[1])) % len(kept["age"])
    agents = jnp.arange(len(first))[:, None]
    # One error that is not finite would spread to all new steps by the peak, and end the learning.
    known = mask & jnp.isfinite(error)
    error = jnp.where(known, error, kept["error"][row, group, agents])
    peak = jnp.maximum(kept["peak"], jnp.where(known, error, 0.0).max())
    return {"error": kept["error"].at[row, group, agents].set(error), "peak": peak}
