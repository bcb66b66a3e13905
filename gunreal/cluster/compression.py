"""Gradients in half the bytes: bfloat16, with the rounding error added to the next gradient (Seide et al. 2014)."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16


class Packer:
    """Packs the gradients of one node as `dtype`: "bfloat16", or "float32", which changes nothing."""

    def __init__(self, dtype: str):
        self._packs = dtype == "bfloat16"
        self._error: np.ndarray | None = None

    def pack(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient float32 `[n]` as uint16 `[n]`, the bits of bfloat16, or unchanged."""
        if not self._packs:
            return gradient
        wanted = gradient if self._error is None else gradient + self._error
        packed = wanted.astype(bfloat16).view(np.uint16)
        with np.errstate(invalid="ignore"):
            error = wanted - unpack(packed)
        self._error = np.where(np.isfinite(error), error, np.float32(0))
        return packed


def unpack(packed: np.ndarray) -> np.ndarray:
    """A packed gradient as float32 `[n]`. Other arrays are returned unchanged."""
    return packed.view(bfloat16).astype(np.float32) if packed.dtype == np.uint16 else packed
