"""Games with their start states and settings as one array, which the emulator reads on any device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from gunreal_emulator.build import library
from gunreal_emulator.console import WIDTH
from gunreal_emulator.settings import Settings


def pack(games: Sequence[Settings]) -> np.ndarray:
    """Returns the data of several games that have the same settings, uint8 `[bytes]`."""
    lib, n = library(), len(games)
    handles = (ctypes.c_void_p * n)(*[game.loaded.handle for game in games])
    palettes = np.stack([game.palette for game in games])
    actions, counts = np.zeros((n, 18), np.int32), np.array([len(game.actions) for game in games], np.int32)
    for row, game in zip(actions, games, strict=True):
        row[: len(game.actions)] = game.actions
    arguments = (handles, n, ctypes.byref(games[0].protocol), palettes.ctypes.data, actions.ctypes.data,
                 counts.ctypes.data)  # fmt: skip
    out = np.empty(lib.atari_pack(*arguments, None), np.uint8)
    lib.atari_pack(*arguments, out.ctypes.data)
    return out


def player_offset(field: str) -> int:
    """Returns where "game", "lives", "frames", "ram", "buffer" or "pc" is in the state of a console, in bytes."""
    return library().atari_player_offset(("game", "lives", "frames", "ram", "buffer", "pc").index(field))


def state_shapes(games: Sequence[Settings]) -> tuple[tuple[int], tuple[int, int, int]]:
    """Returns the shapes of a console's uint8 arrays: its state, and its two pictures."""
    rows = max(game.loaded.game.height for game in games)
    return (library().atari_player_size(),), (2, rows, WIDTH)
