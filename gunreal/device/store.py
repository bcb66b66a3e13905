"""The newest steps of all agents on the device: the rows of `gunreal.experience.replay`, as JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import numpy as jnp

from gunreal.experience.replay import Read, row_arrays
from gunreal.experience.sequences import LEAST_PRIORITY
from gunreal.experience.spec import RecordedField, Spec

# Arrays `[ring, groups, n, ...]` by the names of `gunreal.experience.replay.Replay.get`, with "state" for a recurrent
# network, "vector" beside images, `spec.bonuses` and what tasks record. Besides them, "version" int32 `[ring]` is the
# number of updates before each step, "end" int32 is the absolute number of the next step, and "start" int32 is that of
# the first step whose stack of frames is complete. For tasks that report priorities, and for DQN as "base",
# "<name>.priority" float32 has them. Agent `j * groups + g` is number j of group g, so that all devices share each
# group.
Store = dict[str, Any]


def ring_size(spec: Spec, replay: int, block: int) -> int:
    """Number of rows, in whole blocks.

    There are rows for a rollout, or for the replay and the state after it. The rows before them are for stacks and for
    the last action of a recurrent network.
    """
    rows = max(spec.t_max, replay + 1 if replay else 0) + max(spec.stack - 1, 1)
    return -(-rows // block) * block


def blank(spec: Spec, rows: int, groups: int, agents: int, fields: Mapping[str, RecordedField]) -> Store:
    """A store without steps, for `agents` in total. `fields` are what tasks record, by name."""
    shape = (rows, groups, agents // groups)
    arrays = row_arrays(spec) | {"age": ((), "int32")}
    arrays |= {name: (field.shape, field.dtype) for name, field in fields.items()}
    store = {name: jnp.zeros((*shape, *inner), dtype) for name, (inner, dtype) in arrays.items() if name != "version"}
    store["version"] = jnp.zeros(rows, "int32")
    return store | {"end": jnp.int32(0), "start": jnp.int32(0)}


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
    none = {name: jnp.zeros(block["age"].shape) for name in store if name.endswith(".priority")}
    for name, array in {**block, **none}.items():
        grouped = jnp.swapaxes(array.reshape(length, -1, groups, *array.shape[2:]), 1, 2)
        added[name] = jax.lax.dynamic_update_slice_in_dim(store[name], grouped, start, 0)
    versions = jnp.full(length, version, "int32")
    added["version"] = jax.lax.dynamic_update_slice_in_dim(store["version"], versions, start, 0)
    return added


def take(store: Store, name: str, group: Any, steps: Any, times: int = 1) -> Any:
    """Steps of one array for the agents of a group, `[n * times, T, ...]`.

    Args:
      steps: absolute numbers, `[n * times, T]`, or `[1, T]` for the same steps of all agents.
      times: how often each agent comes in a row.
    """
    agents = jnp.repeat(jnp.arange(store["age"].shape[2]), times)[:, None]
    if name == "version":  # all agents act together, so the store has it without their axis
        return jnp.broadcast_to(store[name][steps % len(store[name])], (len(agents), steps.shape[1]))
    return store[name][steps % len(store["age"]), group, agents]


def cells(store: Store, steps: Any, times: int = 1) -> Any:
    """The places of steps int `[n * times, T]` of a group's agents in the arrays of the group, for `report`."""
    agents = jnp.repeat(jnp.arange(store["age"].shape[2]), times)[:, None]
    return steps % len(store["age"]) * store["age"].shape[2] + agents


def report(store: Store, name: str, group: Any, cell: Any, priority: Any, mask: Any) -> Any:
    """The priorities of a task after those of some steps of a group have been reported, for the store.

    Those that are not finite would spread, and are left out. The largest one of a step counts.

    Args:
      name: name of the task, or "base".
      cell: places of the steps, as `cells` returns them, int `[m, T]`.
      priority: float32 `[m, T]`.
      mask: 0 for steps without a priority, `[m, T]`.
    """
    array = store[f"{name}.priority"]
    row = jnp.where((mask > 0) & jnp.isfinite(priority), cell // array.shape[2], len(array))  # beyond, it is dropped
    places = row, group, cell % array.shape[2]
    return array.at[places].set(LEAST_PRIORITY, mode="drop").at[places].max(priority, mode="drop")


def read(store: Store, group: Any, times: int = 1) -> Read:
    """Access to the rows of a group's agents by absolute steps, `times` for each agent."""
    return lambda name, steps: take(store, name, group, steps, times)


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
