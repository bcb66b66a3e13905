"""Padding of batches to a small number of sizes, because JAX compiles once per shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.parts import rows


def padded_size(count: int, most: int = 0) -> int:
    """The smallest power of two that is at least `count`, or `most` if that is smaller and large enough."""
    size = 1 << (count - 1).bit_length()
    return most if count <= most < size else size


def pad(array: np.ndarray, size: int) -> np.ndarray:
    """Pads `array` with rows of zeros to `size` rows."""
    if len(array) == size:
        return array
    padded = np.zeros((size, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded


def pad_past(past: Past, size: int) -> Past:
    """Pads `past` with rows of zeros to `size` rows."""
    return Past(*(pad(array, size) for array in past))


def pad_batch(batch: Mapping[str, Any], lengths: Mapping[str, int]) -> dict[str, Any]:
    """Pads the B sequences of `Network.loss`'s batch to a power of two. The mask of the added sequences is 0."""
    count = len(batch["base"]["mask"])
    size = padded_size(count)
    if size == count:
        return dict(batch)
    padded: dict[str, Any] = {
        part: {name: pad(array, size) for name, array in arrays.items()}
        for part, arrays in batch.items()
        if part not in ("observations", "past")
    }
    if "past" in batch:
        padded["past"] = {part: pad_past(past, size) for part, past in batch["past"].items()}
    parts = [pad(part, size) for part in rows(batch, lengths).values()]
    padded["observations"] = np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts])
    return padded
