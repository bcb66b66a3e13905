"""Training batches from the store: the rollouts of a group of agents, and the inputs of their objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.config.schema import Config
from gunreal.device.acting import Actors, clipped, with_time_axis
from gunreal.device.store import Store, observations, take
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Past
from gunreal.experience.spec import Spec

Batch = dict[str, Any]


def gather(config: Config, spec: Spec, predict: Any, weights: Any, actors: Actors, store: Store, group: Any) -> Batch:
    """The newest rollout of each agent of a group, as the actor-critic's part of a batch.

    The batch is that of `Network.loss`, except that "observations" is a dict of arrays `[n, T, *spec.observation]` by
    the names of the parts. Steps before the start of the run have mask 0.

    Args:
      config: configuration of the run.
      spec: shapes and constants.
      predict: `JaxLearner.functional_predict`.
      weights: the current weights, for the values of the states after the rollouts.
      actors: the agents after the newest step of the store.
      store: the steps.
      group: number of the group.
    """
    steps = (store["end"] - spec.t_max + jnp.arange(spec.t_max))[None]
    flags = take(store, "flags", group, steps)
    present = (flags & RESET == 0) & (steps >= 0)
    groups = store["age"].shape[1]
    of_group = jax.tree.map(
        lambda x: x.reshape(-1, groups, *x.shape[1:])[:, group], (actors.stack, with_time_axis(actors.past))
    )
    bootstrap = predict(weights, *of_group)[1]
    value = take(store, "value", group, steps)
    value_t = jnp.concatenate([value[:, 1:], bootstrap[:, None]], axis=1)
    reward = clipped(take(store, "reward", group, steps), spec)
    discount = jnp.where(flags & TERMINATED, 0.0, spec.discount).astype("float32")
    truncated = (flags & TRUNCATED != 0).astype("float32")
    base = {"action": take(store, "action", group, steps), "mask": present.astype("float32")}
    log_mu = take(store, "log_mu", group, steps)
    if config.algorithm == "ppo":
        advantage = generalized_advantages(reward, discount, truncated, value, value_t, config.gae_lambda)
        base |= {"returns": advantage + value, "log_mu": log_mu, "advantage": normalized(advantage, base["mask"])}
    elif config.correction == "vtrace":
        base |= {"reward": reward, "discount": discount, "truncated": truncated, "value_t": value_t, "log_mu": log_mu}
    else:
        base |= {"returns": rollout_returns(reward, discount, truncated, value_t)}
    batch = {"observations": {"base": observations(store, spec, group, steps)}, "base": base}
    batch["past"] = {"base": past(store, spec, group, steps)} if spec.state else {}
    return batch


def past(store: Store, spec: Spec, group: Any, steps: Any) -> Past:
    """What `gunreal.experience.segment.Segment.past` returns, for steps `[n, T]` or `[1, T]`."""
    new = take(store, "flags", group, steps) & FIRST != 0
    action, reward = take(store, "action", group, steps - 1), clipped(take(store, "reward", group, steps - 1), spec)
    state = take(store, "state", group, steps[:, :1])[:, 0]
    return Past(state, jnp.where(new, -1, action), jnp.where(new, 0.0, reward))


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
    """The batch of the actor-critic with the parts of the tasks."""
    return {**of_tasks, **batch, **{name: batch[name] | of_tasks[name] for name in ("observations", "past")}}


def without_tasks(batch: Batch) -> Batch:
    """The part of a batch that the actor-critic learns from."""
    return {
        "base": batch["base"],
        **{name: {key: x for key, x in batch[name].items() if key == "base"} for name in ("observations", "past")},
    }


def minibatch(batch: Batch, taken: Any) -> Batch:
    """The rollouts `taken` (int `[n]`) of a batch."""
    return jax.tree.map(lambda x: x[taken], batch)


def normalized(advantage: Any, mask: Any) -> Any:
    """`gunreal.runtime.trainer.normalized` in JAX."""
    count = jnp.maximum(mask.sum(), 1.0)
    mean = (advantage * mask).sum() / count
    deviation = jnp.sqrt((jnp.square(advantage - mean) * mask).sum() / count)
    return jnp.where(count > 1, (advantage - mean) / (deviation + 1e-8), advantage)


def generalized_advantages(
    rewards: Any, discounts: Any, truncated: Any, values: Any, values_t: Any, decay: float
) -> Any:
    """`gunreal.experience.returns.generalized_advantages` in JAX. `truncated` is float32."""
    errors = rewards + discounts * values_t - values
    return _backward(
        lambda after, error, trace: error + trace * after,
        jnp.zeros_like(errors[:, 0]),
        errors,
        discounts * decay * (1 - truncated),
    )


def rollout_returns(rewards: Any, discounts: Any, truncated: Any, values_t: Any) -> Any:
    """`gunreal.experience.returns.rollout_returns` in JAX. `truncated` is float32."""
    return _backward(
        lambda after, reward, discount, cut, value: reward + discount * jnp.where(cut > 0, value, after),
        values_t[:, -1],
        rewards,
        discounts,
        truncated,
        values_t,
    )


def _backward(function: Callable[..., Any], last: Any, *arrays: Any) -> Any:
    """The results `[B, T]` of a recursion from the last step to the first over arrays `[B, T]`."""

    def step(after: Any, now: tuple[Any, ...]) -> tuple[Any, Any]:
        result = function(after, *now)
        return result, result

    _, results = jax.lax.scan(step, last, tuple(array.T for array in arrays), reverse=True)
    return results.T
