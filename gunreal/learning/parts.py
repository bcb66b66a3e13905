"""The parts of a batch: the base rollouts, and the sequences of each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def present(lengths: Mapping[str, int], batch: Mapping[str, Any]) -> dict[str, int]:
    """The parts that a batch has, with the number of rows of their sequences, in the order of `lengths`."""
    return {name: length for name, length in lengths.items() if name in batch}


def rows(batch: Mapping[str, Any], lengths: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The observations of each part, `[B, length, *spec.observation]`, as views of `batch["observations"]`."""
    count, lengths = len(batch["base"]["mask"]), present(lengths, batch)
    ends = np.cumsum([count * length for length in lengths.values()])[:-1]
    parts = np.split(batch["observations"], ends)
    return {
        name: part.reshape(count, length, *part.shape[1:])
        for (name, length), part in zip(lengths.items(), parts, strict=True)
    }
