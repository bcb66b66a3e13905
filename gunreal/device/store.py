"""The newest steps of all agents on the device: the rows of `gunreal.experience.replay`, as JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.experience.replay import Read
from gunreal.experience.spec import Spec

# Arrays `[ring, groups, n, ...]` by the names of `gunreal.experience.replay.Replay.get`, with "state" for a recurrent
# network, "vector" beside images and "bonus" for tasks that give one. Besides them, "version" int32 `[ring]` is the
# number of updates before each step, "end" int32 is the absolute number of the next step, and "start" int32 is that of
# the first step whose stack of frames is complete. DQN with priorities has the latest absolute "error" float32 of each
# step, and the largest one so far, "peak". Agent `j * groups + g` is number j of group g, so that all devices share
# each group.
Store = dict[str, Any]


def ring_size(spec: Spec, replay: int, block: int) -> int:
    """Number of rows, in whole blocks.

    There are rows for a rollout, or for the replay and the state after it. The rows before them are for stacks and for
    the last action of a recurrent network.
    """
    rows = max(spec.t_max, replay + 1 if replay else 0) + max(spec.stack - 1, 1)
    return -(-rows // block) * block


def blank(spec: Spec, rows: int, groups: int, agents: int, priorities: bool = False) -> Store:
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
        "start": jnp.int32(0),
    }
    if priorities:
        store |= {"error": jnp.zeros(shape, "float32"), "peak": jnp.float32(1)}
    if spec.state:
        store["state"] = jnp.zeros((*shape, spec.state), "float32")
    if spec.vectors:
        store["vector"] = jnp.zeros((*shape, spec.vectors), "float32")
    if spec.bonus:
        store["bonus"] = jnp.zeros(shape, "float32")
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
    if "error" in store:  # new steps are drawn soon
        block = {**block, "error": jnp.full(block["age"].shape, store["peak"])}
    for name, array in block.items():
        grouped = jnp.swapaxes(array.reshape(length, -1, groups, *array.shape[2:]), 1, 2)
        added[name] = jax.lax.dynamic_update_slice_in_dim(store[name], grouped, start, 0)
    versions = jnp.full(length, version, "int32")
    added["version"] = jax.lax.dynamic_update_slice_in_dim(store["version"], versions, start, 0)
    return added


def take(store: Store, name: str, group: Any, steps: Any) -> Any:
    """Steps of one array for the agents of a group, `[n, T, ...]`.

    Args:
      store: the store.
      name: name of the array.
      group: number of the group.
      steps: absolute numbers, `[n, T]`, or `[1, T]` for the same steps of all agents.
    """
    agents = jnp.arange(store["age"].shape[2])[:, None]
    if name == "version":  # all agents act together, so the store has it without their axis
        return jnp.broadcast_to(store[name][steps % len(store[name])], (len(agents), steps.shape[1]))
    return store[name][steps % len(store["age"]), group, agents]


def read(store: Store, group: Any) -> Read:
    """Access to the rows of a group's agents by absolute steps."""
    return lambda name, steps: take(store, name, group, steps)


def resized(store: Store, spec: Spec, rows: int) -> Store:
    """The newest steps in a store of another number of rows."""
    ring = len(store["age"])
    kept = min(ring, rows)
    steps = store["end"] - kept + jnp.arange(kept)

    def moved(array: Any) -> Any:
        blank = jnp.zeros((rows, *array.shape[1:]), array.dtype)
        return blank.at[steps % rows].set(array[steps % ring], unique_indices=True)

    found = {name: moved(array) for name, array in store.items() if array.ndim}
    whole = jnp.maximum(store["start"], store["end"] - kept + max(spec.stack - 1, 1))
    scalars = {name: array for name, array in store.items() if not array.ndim}
    return found | scalars | {"start": jnp.where(kept < ring, whole, store["start"])}
