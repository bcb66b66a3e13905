"""Gradients in half the bytes: bfloat16, with the rounding error added to the next gradient (Seide et al. 2014)."""

from __future__ import annotations

import numpy as np


class Packer:
    """Packs the gradients of one node as `dtype`: "bfloat16", or "float32", which changes nothing."""

    def __init__(self, dtype: str):
        self._packs = dtype == "bfloat16"
        self._error: np.ndarray | None = None

    def pack(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient float32 `[n]` as uint16 `[n]`, the upper halves of the floats, or unchanged."""
        if not self._packs:
            return gradient
        wanted = gradient if self._error is None else gradient + self._error
        packed = _rounded(wanted)
        with np.errstate(invalid="ignore"):
            error = wanted - unpack(packed)
        self._error = np.where(np.isfinite(error), error, np.float32(0))
        return packed


def _rounded(values: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, as uint16. NaN and infinities stay what they are."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isfinite(values), rounded, (bits >> np.uint32(16)) | np.isnan(values)).astype(np.uint16)


def unpack(packed: np.ndarray) -> np.ndarray:
    """A packed gradient as float32 `[n]`. Other arrays are returned unchanged."""
    return (packed.astype(np.uint32) << np.uint32(16)).view(np.float32) if packed.dtype == np.uint16 else packed
