"""The pictures of the ViZDoom mazes: walls by which places are told apart, and items that are seen from afar.

A wall's pattern and hue say in which part of the maze it stands, its brightness to which side it faces; all of that
shows in gray too. The engine maps colours to Doom's palette of 256.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

WIDTH, HEIGHT = 160, 128  # of a wall's picture; where its height is no power of 2, the engine reads beyond it
GRAY = np.array([0.21, 0.72, 0.07])  # the engine's own weights
_LIGHT, _DARK = 150, 60  # gray levels of a pattern
_TONES = (1.0, 0.82, 0.64, 0.5)  # of the walls above, to the right, below and to the left of a cell

_row, _column = np.indices((HEIGHT, WIDTH)) + 0.5
_x, _y = _column / 80 % 1, _row / 80 % 1  # small enough for something to be seen of it up close
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
# Hues that Doom's palette has in all brightnesses.
_HUES = ((255, 90, 90), (110, 110, 255), (235, 215, 80), (90, 170, 70), (160, 160, 160), (225, 150, 95))


def wall(pattern: int, side: int) -> np.ndarray:
    """A wall's picture: uint8 `[HEIGHT, WIDTH, 3]`; `side` is 0 to 3."""
    hue = np.array(_HUES[pattern % len(_HUES)])
    light, dark = (np.minimum(hue * (gray * _TONES[side] / (hue @ GRAY)), 255) for gray in (_LIGHT, _DARK))
    picture = np.where(_PATTERNS[pattern][:, :, None], light, dark)
    edge = (_column < 5) | (_column > WIDTH - 5)
    return np.where(edge[:, :, None], 0.5 * dark, picture).round().astype(np.uint8)


def floor() -> np.ndarray:
    """Gray squares, on which movement shows: uint8 `[128, 128, 3]`; the engine wants a power of 2."""
    row, column = np.indices((128, 128)) // 64
    return np.where((row == column)[:, :, None], (62, 52, 44), (44, 38, 32)).astype(np.uint8)


def ceiling() -> np.ndarray:
    """Plain dark blue: uint8 `[64, 64, 3]`."""
    return np.full((64, 64, 3), (20, 20, 50), np.uint8)


def apple() -> np.ndarray:
    """A light green ball with a dark rim: uint8 `[48, 48, 4]`, RGB and opacity."""
    y, x = (np.indices((48, 48)) + 0.5) / 24 - 1
    radius = np.hypot(x, y)
    return _paint((radius < 1, (0, 40, 0)), (radius < 0.84, (100, 255, 90)))


def lemon() -> np.ndarray:
    """A dark red diamond with a white rim: uint8 `[48, 48, 4]`, RGB and opacity."""
    y, x = (np.indices((48, 48)) + 0.5) / 24 - 1
    distance = abs(x) + abs(y)
    return _paint((distance < 1, (255, 255, 255)), (distance < 0.72, (120, 0, 0)))


def goal() -> np.ndarray:
    """A white column with black bands: uint8 `[96, 56, 4]`, RGB and opacity."""
    row, column = np.indices((96, 56))
    white = (row % 24 < 16) & (abs(column - 27.5) < 25)
    return _paint((np.full((96, 56), True), (0, 0, 0)), (white, (255, 255, 255)))


def _paint(*layers: tuple[np.ndarray, tuple[int, int, int]]) -> np.ndarray:
    picture = np.zeros((*layers[0][0].shape, 4), np.uint8)
    for mask, colour in layers:
        picture[mask] = (*colour, 255)
    return picture


def png(picture: np.ndarray, standing: bool = False) -> bytes:
    """A picture, uint8 `[height, width, 3 or 4]`, as PNG.

    Args:
      picture: RGB, or RGB and opacity.
      standing: it is a sprite, which is held at the middle of its lower edge (ZDoom's chunk grAb).
    """
    height, width, channels = picture.shape
    rows = np.insert(picture.reshape(height, -1), 0, 0, axis=1)  # each row begins with its filter: none
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)),
        *([(b"grAb", struct.pack(">ii", width // 2, height))] if standing else []),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
