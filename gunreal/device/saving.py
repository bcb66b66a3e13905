"""The state of a device run in its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.device import store
from gunreal.device.program import Loop, Program
from gunreal.experience.spec import Spec
from gunreal.records import checkpoint

_LARGEST = 2**30  # bytes of steps in a checkpoint
_VERSION = f"{checkpoint.DEVICE}.env_version"


def arrays(program: Program, spec: Spec, loop: Loop) -> dict[str, Any]:
    """The arrays of a checkpoint by name. Of a store above 1 GiB, they contain the newest rollouts only."""
    rows = store.ring_size(spec, 0, program.block)
    if rows < len(loop.store["age"]) and sum(array.nbytes for array in loop.store.values()) > _LARGEST:
        loop = loop._replace(store=_resized(program, spec, loop.store, rows))
    return dict(_named(loop)) | {_VERSION: np.frombuffer(program.env_version.encode(), np.uint8)}


def restored(program: Program, spec: Spec, saved: Mapping[str, np.ndarray]) -> Loop:
    """The state that a checkpoint holds. Its store may have another number of rows.

    Raises:
      ConfigError: it belongs to another environment, another number of agents, or another version of the emulator.
    """
    version = saved.get(_VERSION, np.zeros(0, np.uint8)).tobytes().decode()
    if version != program.env_version:
        raise ConfigError(
            "the checkpoint has consoles of another version of the emulator; resume it with the version of gunreal "
            "that wrote it, or start a new run"
        )
    wanted = program.shapes
    rows = len(next((array for name, array in saved.items() if name.endswith(".store['age']")), ()))
    shapes = wanted._replace(store=jax.eval_shape(lambda kept: store.resized(kept, spec, rows), wanted.store))
    found = []
    for name, shape in _named(shapes):
        if name not in saved or saved[name].shape != shape.shape or saved[name].dtype != shape.dtype:
            raise ConfigError(f"the checkpoint does not fit this device run at {name}; start a new run")
        found.append(saved[name])
    loop: Loop = jax.tree.unflatten(jax.tree.structure(shapes), found)
    ring = wanted.store["age"].shape[0]
    if rows != ring:
        kept = jax.device_put(loop.store, program.places.store)
        loop = loop._replace(store=_resized(program, spec, kept, ring))
    return jax.device_put(loop, program.places)


def _resized(program: Program, spec: Spec, kept: store.Store, rows: int) -> store.Store:
    """`store.resized` as one compiled call, because the rows may not fit into the memory of a single device."""
    compiled = jax.jit(lambda kept: store.resized(kept, spec, rows), out_shardings=program.places.store)
    resized: store.Store = compiled(kept)
    return resized


def _named(loop: Loop) -> Iterator[tuple[str, Any]]:
    """The arrays of the loop, or their shapes, by their names in a checkpoint."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(loop):
        yield f"{checkpoint.DEVICE}{jax.tree_util.keystr(path)}", leaf
