"""The state that a serial run saves in addition to its arrays.

Reading a checkpoint executes no code, because the state is JSON. A checkpoint from before the first release has pickled
state, of which only a few harmless classes are accepted.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
from typing import Any

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.tasks.base import ReplaySequence

_ARRAY, _GENERATOR, _SET = "$array", "$generator", "$set"


def pack(state: Any) -> bytes:
    """Packs dicts, lists, numbers, strings, sets, NumPy arrays and random generators as JSON. Tuples become lists."""
    return json.dumps(state, default=_plain).encode()


def unpack(blob: bytes) -> Any:
    """Unpacks what `pack` has packed.

    Raises:
      ConfigError: the blob has another format.
    """
    try:
        if blob.startswith(pickle.PROTO):  # from before the first release
            return _Unpickler(io.BytesIO(blob)).load()
        return json.loads(blob, object_hook=_restored)
    except (ValueError, pickle.UnpicklingError) as error:
        raise ConfigError(f"the checkpoint's serial state cannot be read: {error}; start a new run") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = io.BytesIO()
        np.lib.format.write_array(data, value, allow_pickle=False)
        return {_ARRAY: base64.b64encode(data.getvalue()).decode()}
    if isinstance(value, np.random.Generator):
        return {_GENERATOR: value.bit_generator.state}
    if isinstance(value, set):
        return {_SET: sorted(value)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be saved")


def _restored(found: dict[str, Any]) -> Any:
    if _ARRAY in found:
        return np.lib.format.read_array(io.BytesIO(base64.b64decode(found[_ARRAY])), allow_pickle=False)
    if _GENERATOR in found:
        generator = np.random.default_rng()
        generator.bit_generator.state = found[_GENERATOR]
        return generator
    return set(found[_SET]) if _SET in found else found


class _SavedGroup(dict):
    """The attributes of a group of agents, which was saved as an object before the first release."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.update(state)


_MOVED = {("gunreal.agent", "Group"): _SavedGroup, ("gunreal.tasks.base", "Sequence"): ReplaySequence}
_HARMLESS = {
    ("builtins", "set"),
    ("gunreal.tasks.base", "ReplaySequence"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.random._pcg64", "PCG64"),
    ("numpy.random._pickle", "__bit_generator_ctor"),
    ("numpy.random._pickle", "__generator_ctor"),
    ("numpy.random.bit_generator", "SeedSequence"),
    ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
}


class _Unpickler(pickle.Unpickler):
    """Reads pickled state from before the first release. It only accepts the few harmless classes that were saved."""

    def find_class(self, module: str, name: str) -> Any:
        """The class of a pickled object."""
        if (module, name) in _MOVED:
            return _MOVED[module, name]
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return super().find_class(module, name)
