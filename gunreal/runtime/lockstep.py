"""The state that a serial run saves in addition to its arrays.

Reading a checkpoint executes no code, because the state is JSON.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np

from gunreal.config.schema import ConfigError

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
        return json.loads(blob, object_hook=_restored)
    except ValueError as error:
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
