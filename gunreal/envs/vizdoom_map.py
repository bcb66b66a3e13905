"""Doom maps of mazes, generated at run time as the bytes of a PWAD with pictures, items and geometry.

Sources: https://doomwiki.org/wiki/WAD for the file format, https://doomwiki.org/wiki/UDMF for the map (namespace
"ZDoom"), and https://zdoom.org/wiki/DECORATE for the items and the player.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gunreal.envs import vizdoom_art as art

CELL = art.WIDTH  # side of a cell in map units; one picture covers a wall
WALL_HEIGHT = art.HEIGHT  # map units
MAP_BYTES = 72 * 1024  # all map texts have this length, so that one can overwrite another; 25 x 25 cells fit
_REGION = 3  # walls in a square of 3 x 3 cells share a pattern


class Item(NamedTuple):
    """An item that the player picks up by walking over it.

    Attributes:
      number: number of the item in a map.
      sprite: four-letter name of its picture.
      ammo: ammunition that the player receives for it, because only ammunition can be observed.
      counter: name in `vizdoom.GameVariable` of the counter for this ammunition.
    """

    number: int
    sprite: str
    ammo: str
    counter: str


ITEMS = {
    "apple": Item(20001, "APPL", "Clip", "AMMO2"),
    "goal": Item(20002, "GOAL", "Shell", "AMMO3"),
    "lemon": Item(20003, "LEMN", "Cell", "AMMO6"),
}
_PLAYER_START = 1
_HEADER = "<4sii"

# The engine freezes a player for ReactionTime 35ths of a second after each start.
_ACTORS = """
actor Walker : DoomPlayer
{
  Radius 28
  ReactionTime 0
  Player.StartItem "Clip", 0
}
""" + "".join(
    f"""
actor {name}{item.number} : CustomInventory {item.number}
{{
  Radius 32
  Height 48
  +COUNTITEM
  Inventory.PickupMessage ""
  States
  {{
  Spawn:
    {item.sprite} A -1 Bright
    Stop
  Pickup:
    TNT1 A 0 A_GiveInventory("{item.ammo}", 1)
    Stop
  }}
}}
"""
    for name, item in ITEMS.items()
)
_GAME = 'gameinfo { playerclasses = "Walker" }'


class Thing(NamedTuple):
    """An item at the center of a cell, given by a key of `ITEMS` and a (row, column)."""

    kind: str
    cell: tuple[int, int]


class Map:
    """A maze with its items.

    Args:
      free: bool `[rows, columns]`, 3 or more of each, False for walls. The outermost cells are walls.
      things: items on free cells.
    """

    def __init__(self, free: np.ndarray, things: Sequence[Thing]):
        self.free = free
        items = (self._thing(cell, ITEMS[kind].number) for kind, cell in things)
        self._text = "\n".join([*_geometry(free), *items, ""])

    def text(self, start: tuple[int, int], angle: int) -> bytes:
        """The map in UDMF, padded with spaces to `MAP_BYTES`.

        Args:
          start: (row, column) of the cell in whose center the player starts.
          angle: viewing direction of the player in degrees (0 to the right, 90 up).
        """
        text = (self._text + self._thing(start, _PLAYER_START, angle)).encode()
        assert len(text) <= MAP_BYTES
        return text.ljust(MAP_BYTES)

    def position(self, cell: tuple[int, int]) -> tuple[float, float]:
        """The center of a cell in map units, x to the right and y up."""
        return (cell[1] + 0.5) * CELL, (len(self.free) - cell[0] - 0.5) * CELL

    def _thing(self, cell: tuple[int, int], number: int, angle: int = 0) -> str:
        x, y = self.position(cell)
        return f"thing{{x={x};y={y};angle={angle};type={number};skill3=true;single=true;}}"


def _geometry(free: np.ndarray) -> Iterator[str]:
    yield 'namespace="ZDoom";'
    yield f"sector{{heightfloor=0;heightceiling={WALL_HEIGHT};lightlevel=200;"
    yield 'texturefloor="FLOOR";textureceiling="CEILING";}'
    corners: dict[tuple[int, int], int] = {}
    for side, (begin, end, picture) in enumerate(_walls(free)):
        v1, v2 = (corners.setdefault(corner, len(corners)) for corner in (begin, end))
        yield f'sidedef{{sector=0;texturemiddle="{picture}";}}'
        yield f"linedef{{v1={v1};v2={v2};sidefront={side};blocking=true;}}"
    for row, column in corners:
        yield f"vertex{{x={column * CELL};y={(len(free) - row) * CELL};}}"


def _walls(free: np.ndarray) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """The walls around all free cells: start and end corner (row, column), and picture. The cell lies to the right."""
    for row, column in np.argwhere(free).tolist():
        corners = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
        neighbors = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        region = (row // _REGION * 4 + column // _REGION) % art.PATTERNS
        for side, neighbor in enumerate(neighbors):
            if not free[neighbor]:
                yield corners[side], corners[(side + 1) % 4], _picture(region, side)


def _picture(pattern: int, side: int) -> str:
    return f"WALL{pattern:X}{side}"


def wad(text: bytes) -> tuple[bytes, int]:
    """A PWAD with one map, MAP01, of this `Map.text`, and all of its pictures.

    Returns:
      The file, and the offset of the text in it. The engine reads the text again for each episode.
    """
    walls = {_picture(pattern, side): art.wall(pattern, side) for pattern in range(art.PATTERNS) for side in range(4)}
    textures = walls | {"FLOOR": art.floor(), "CEILING": art.ceiling()}
    sprites = {"APPL": art.apple(), "GOAL": art.goal(), "LEMN": art.lemon()}
    lumps = [
        ("DECORATE", _ACTORS.encode()),
        ("MAPINFO", _GAME.encode()),
        ("TX_START", b""),
        *((name, art.png(picture)) for name, picture in textures.items()),
        ("TX_END", b""),
        ("S_START", b""),
        *((f"{name}A0", art.png(picture, standing=True)) for name, picture in sprites.items()),
        ("S_END", b""),
        ("MAP01", b""),
        ("TEXTMAP", text),
        ("ENDMAP", b""),
    ]
    offsets, offset = {}, struct.calcsize(_HEADER)
    directory = b""
    for name, data in lumps:
        offsets[name] = offset
        directory += struct.pack("<ii8s", offset, len(data), name.encode())
        offset += len(data)
    content = b"".join(data for _, data in lumps)
    return struct.pack(_HEADER, b"PWAD", len(lumps), offset) + content + directory, offsets["TEXTMAP"]
