"""The pictures of the ViZDoom mazes: distinct walls to tell places apart, and items that are visible from afar.

The pattern and hue of a wall show which part of the maze it belongs to. Its brightness shows which side it faces. Both
remain visible in gray. The engine maps colors to Doom's palette of 256 colors.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

WIDTH, HEIGHT = 160, 128  # of a wall's picture; the engine reads out of bounds if the height is not a power of 2
GRAY = np.array([0.21, 0.72, 0.07])  # the engine's own weights
_LIGHT, _DARK = 150, 60  # gray levels of a pattern
_TONES = (1.0, 0.82, 0.64, 0.5)  # brightness of the walls above, to the right, below and to the left of a cell

_row, _column = np.indices((HEIGHT, WIDTH)) + 0.5
_x, _y = _column / 80 % 1, _row / 80 % 1  # the pattern repeats, so that it is visible up close
_radius = np.hypot(_x - 0.5, _y - 0.5)
_PATTERNS = (
    _x % 0.5 < 0.25,  # stripes
    _y > 2 * abs(_x - 0.5),  # triangles
    (_x < 0.5) ^ (_y < 0.5),  # a checkerboard
    (_x + _y) % 0.5 < 0.25,  # diagonals
    (abs(_x - 0.5) < 0.12) | (abs(_y - 0.5) < 0.12),  # crosses
    _y % 0.5 < 0.25,  # bars
    abs(_x - 0.5) + abs(_y - 0.5) < 0.42,  # diamonds
    (abs(_x - 0.5) > 0.34) | (abs(_y - 0.5) > 0.34),  # frames
    (_x - _y) % 1 < 0.5,  # broad diagonals, the other way
    (_radius > 0.2) & (_radius < 0.42),  # rings
    (_y + abs(_x - 0.5)) % 0.5 < 0.25,  # zigzags
    (_y % 0.5 < 0.4) & ((_x + 0.5 * (_y < 0.5)) % 1 < 0.85),  # bricks
)
PATTERNS = len(_PATTERNS)
# Hues that Doom's palette contains at all brightness levels.
_HUES = ((255, 90, 90), (110, 110, 255), (235, 215, 80), (90, 170, 70), (160, 160, 160), (225, 150, 95))


def wall(pattern: int, side: int) -> np.ndarray:
    """The picture of a wall, uint8 `[HEIGHT, WIDTH, 3]`, for a pattern and a side from 0 to 3."""
    hue = np.array(_HUES[pattern % len(_HUES)])
    light, dark = (np.minimum(hue * (gray * _TONES[side] / (hue @ GRAY)), 255) for gray in (_LIGHT, _DARK))
    picture = np.where(_PATTERNS[pattern][:, :, None], light, dark)
    edge = (_column < 5) | (_column > WIDTH - 5)
    return np.where(edge[:, :, None], 0.5 * dark, picture).round().astype(np.uint8)


def floor() -> np.ndarray:
    """Gray squares that make movement visible, uint8 `[128, 128, 3]`. The engine needs a power of 2."""
    row, column = np.indices((128, 128)) // 64
    return np.where((row == column)[:, :, None], (62, 52, 44), (44, 38, 32)).astype(np.uint8)


def ceiling() -> np.ndarray:
    """Plain dark blue, uint8 `[64, 64, 3]`."""
    return np.full((64, 64, 3), (20, 20, 50), np.uint8)


def apple() -> np.ndarray:
    """A light green ball with a dark rim, uint8 `[48, 48, 4]`, RGB and opacity."""
    y, x = (np.indices((48, 48)) + 0.5) / 24 - 1
    radius = np.hypot(x, y)
    return _paint((radius < 1, (0, 40, 0)), (radius < 0.84, (100, 255, 90)))


def lemon() -> np.ndarray:
    """A dark red diamond with a white rim, uint8 `[48, 48, 4]`, RGB and opacity."""
    y, x = (np.indices((48, 48)) + 0.5) / 24 - 1
    distance = abs(x) + abs(y)
    return _paint((distance < 1, (255, 255, 255)), (distance < 0.72, (120, 0, 0)))


def goal() -> np.ndarray:
    """A white column with black bands, uint8 `[96, 56, 4]`, RGB and opacity."""
    row, column = np.indices((96, 56))
    white = (row % 24 < 16) & (abs(column - 27.5) < 25)
    return _paint((np.full((96, 56), True), (0, 0, 0)), (white, (255, 255, 255)))


def _paint(*layers: tuple[np.ndarray, tuple[int, int, int]]) -> np.ndarray:
    picture = np.zeros((*layers[0][0].shape, 4), np.uint8)
    for mask, color in layers:
        picture[mask] = (*color, 255)
    return picture


def png(picture: np.ndarray, standing: bool = False) -> bytes:
    """Encodes a picture as PNG.

    Args:
      picture: uint8 `[height, width, 3]` (RGB) or `[height, width, 4]` (RGB and opacity).
      standing: whether it is a sprite that is anchored at the middle of its lower edge (ZDoom's chunk grAb).
    """
    height, width, channels = picture.shape
    rows = np.insert(picture.reshape(height, -1), 0, 0, axis=1)  # each row begins with its filter type, 0 for none
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)),
        *([(b"grAb", struct.pack(">ii", width // 2, height))] if standing else []),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
