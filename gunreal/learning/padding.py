"""Padding of predictions to a small number of sizes, because JAX compiles once per shape."""

from __future__ import annotations

import numpy as np

from gunreal.experience.replay import Past


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
