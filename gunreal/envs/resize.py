"""Resizing of an emulator's screen by area: what OpenCV's INTER_AREA does, for 84x84 in gray in a third of its time."""

from __future__ import annotations

import math

import numpy as np


class AreaResize:
    """Averages the pixels `[H, W]` or `[H, W, C]` of a screen over the areas of fewer pixels.

    A pixel is the mean of the rows, then of the columns that it covers, weighted with how much of them it covers. These
    weights repeat (84 rows of 210 are 42 times the same 2 of 5), so each direction is one small matrix product over all
    blocks. A mean half way between two integers may be rounded to either.

    Args:
      screen: shape of what is resized.
      size: (height, width) of the result.
    """

    def __init__(self, screen: tuple[int, ...], size: tuple[int, int]):
        (height, width), channels = screen[:2], screen[2:]
        self._rows, self._columns = _weights(height, size[0]), _weights(width, size[1]).T.copy()
        (of_rows, rows), (columns, of_columns) = self._rows.shape, self._columns.shape
        self._screen = np.empty((*channels, height, width), np.float32)
        self._blocks = self._screen.reshape(*channels, -1, rows, width)
        self._lower = np.empty((*channels, height // rows, of_rows, width), np.float32)
        self._image = np.empty((*channels, *size), np.float32)
        self._lower_blocks, self._image_blocks = self._lower.reshape(-1, columns), self._image.reshape(-1, of_columns)

    def __call__(self, screen: np.ndarray, out: np.ndarray) -> None:
        """Writes the rounded image `[C, *size]` or `[*size]` of a uint8 screen to `out`, whatever its strides."""
        np.copyto(self._screen, screen if screen.ndim == 2 else screen.transpose(2, 0, 1))
        np.matmul(self._rows, self._blocks, out=self._lower)
        np.matmul(self._lower_blocks, self._columns, out=self._image_blocks)
        np.rint(self._image, out=self._image)
        np.copyto(out, self._image.reshape(out.shape), casting="unsafe")


def _weights(source: int, target: int) -> np.ndarray:
    """Share `[q, p]` of each of p source pixels in each of q target pixels: `target / source` in lowest terms."""
    common = math.gcd(source, target)
    p, q = source // common, target // common
    source_edges, target_edges = np.arange(p + 1) * q, np.arange(q + 1)[:, None] * p  # both in 1/q of a source pixel
    overlap = np.minimum(source_edges[1:], target_edges[1:]) - np.maximum(source_edges[:-1], target_edges[:-1])
    return (np.maximum(overlap, 0) / p).astype(np.float32)
