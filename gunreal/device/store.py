"""The newest steps of all agents on the device: the rows of `gunreal.experience.replay`, as JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.experience.spec import Spec

# Arrays `[ring, groups, n, ...]` by the names of `gunreal.experience.replay.Replay.get`, with "state" for a recurrent
# network. Besides them, "version" int32 `[ring]` is the number of updates before each step, and "end" int32 is the
# absolute number of the next step. Agent `j * groups + g` is number j of group g, so that all devices share each group.
Store = dict[str, Any]


def ring_size(spec: Spec, replay: int, block: int) -> int:
    """Number of rows: those of a rollout or of the replay, those before them for stacks, in whole blocks."""
    rows = max(spec.t_max, replay) + max(spec.stack - 1, 1)
    return -(-rows // block) * block


def blank(spec: Spec, rows: int, groups: int, agents: int) -> Store:
    """A store without steps, for `agents` in total."""
    shape = (rows, groups, agents // groups)
    store = {
        "frame": jnp.zeros((*shape, *spec.frame), spec.dtype),
        "age": jnp.zeros(shape, "int32"),
        "action": jnp.zeros(shape, "int32"),
        "reward": jnp.zeros(shape, "float32"),
        "flags": jnp.zeros(shape, "uint8"),
        "log_mu": jnp.zeros(shape, "float32"),
        "value": jnp.zeros(shape, "float32"),
        "version": jnp.zeros(rows, "int32"),
        "end": jnp.int32(0),
    }
    if spec.state:
        store["state"] = jnp.zeros((*shape, spec.state), "float32")
    return store


def append(store: Store, block: Mapping[str, Any], version: Any) -> Store:
    """Adds a block of steps.

    Args:
      store: the store, whose number of rows is a multiple of the block's.
      block: arrays `[block, agents, ...]`.
      version: number of updates before the block.
    """
    rows, groups = store["age"].shape[:2]
    start = store["end"] % rows
    length = len(block["age"])
    added = dict(store, end=store["end"] + length)
    for name, array in block.items():
        grouped = jnp.swapaxes(array.reshape(length, -1, groups, *array.shape[2:]), 1, 2)
        added[name] = jax.lax.dynamic_update_slice_in_dim(store[name], grouped, start, 0)
    versions = jnp.full(length, version, "int32")
    added["version"] = jax.lax.dynamic_update_slice_in_dim(store["version"], versions, start, 0)
    return added


def take(store: Store, name: str, group: Any, steps: Any) -> Any:
    """Steps `[T]` (absolute numbers) of one array for the agents of a group, `[n, T, ...]`."""
    return jnp.swapaxes(store[name][steps % len(store["age"]), group], 0, 1)


def observations(store: Store, spec: Spec, group: Any, first: Any, length: int) -> Any:
    """The stacked observations `[n, length, *spec.observation]` of steps `first .. first + length - 1`."""
    before = spec.stack - 1
    steps = first - before + jnp.arange(length + before)
    frames = take(store, "frame", group, steps)
    age = take(store, "age", group, steps[before:])
    age = age.reshape(*age.shape, *[1] * len(spec.frame))
    stacked = [frames[:, before:]]
    for back in range(1, spec.stack):  # the first frame of an episode is repeated
        earlier = frames[:, before - back : before - back + length]
        stacked.append(jnp.where(age >= back, earlier, stacked[-1]))
    return jnp.concatenate(stacked[::-1], axis=2)
