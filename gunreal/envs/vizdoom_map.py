"""Doom maps of mazes, written at run time as the bytes of a PWAD: pictures, items and geometry.

The file format is described at https://doomwiki.org/wiki/WAD, the map's at https://doomwiki.org/wiki/UDMF (namespace
"ZDoom"), the items' and the player's (DECORATE) at https://zdoom.org/wiki/DECORATE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gunreal.envs import vizdoom_art as art

CELL = art.WIDTH  # map units of a cell's side: one picture covers a wall
WALL_HEIGHT = art.HEIGHT  # map units
MAP_BYTES = 72 * 1024  # all maps' texts are as long, so that one can be written over another; 25 x 25 cells fit
_REGION = 3  # walls in a square of 3 x 3 cells have one pattern


class Item(NamedTuple):
    """Something that the player picks up by walking over it.

    Attributes:
      number: by which a map names it.
      sprite: the four letters by which the engine finds its picture.
      ammo: what the player gets for it, for that is what can be observed.
      counter: the `vizdoom.GameVariable` that counts it.
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
    """An item at the centre of a cell: a key of `ITEMS`, and row and column."""

    kind: str
    cell: tuple[int, int]


class Map:
    """A maze with its items.

    Args:
      free: bool `[rows, columns]`, False: wall; the outermost cells are walls.
      things: what lies on free cells.

    Raises:
      ValueError: on what the engine would stumble over.
    """

    def __init__(self, free: np.ndarray, things: Sequence[Thing]):
        if free.ndim != 2 or free.dtype != bool or min(free.shape) < 3:
            raise ValueError(f"a maze is bool [rows, columns], 3 or more of each, not {free.dtype} {list(free.shape)}")
        if free[[0, -1]].any() or free[:, [0, -1]].any():
            raise ValueError("a maze's outermost cells have to be walls")
        self.free = free
        for kind, cell in things:
            if kind not in ITEMS:
                raise ValueError(f"there is no item {kind!r}, only {', '.join(ITEMS)}")
            self._check(kind, cell)
        items = (self._thing(cell, ITEMS[kind].number) for kind, cell in things)
        self._text = "\n".join([*_geometry(free), *items, ""])

    def text(self, start: tuple[int, int], angle: int) -> bytes:
        """The map in UDMF, filled up with blanks to `MAP_BYTES`.

        Args:
          start: row and column of the cell at whose centre the player begins.
          angle: in degrees, where the player looks: 0 to the right, 90 up.

        Raises:
          ValueError: the start is on no free cell, or the maze is too large.
        """
        self._check("the start", start)
        text = (self._text + self._thing(start, _PLAYER_START, angle)).encode()
        if len(text) > MAP_BYTES:
            raise ValueError(f"a maze with {len(text)} bytes of text is too large: {MAP_BYTES} at most")
        return text.ljust(MAP_BYTES)

    def position(self, cell: tuple[int, int]) -> tuple[float, float]:
        """A cell's centre: x to the right, y up, in map units."""
        return (cell[1] + 0.5) * CELL, (len(self.free) - cell[0] - 0.5) * CELL

    def _check(self, name: str, cell: tuple[int, int]) -> None:
        rows, columns = self.free.shape
        if not (0 <= cell[0] < rows and 0 <= cell[1] < columns and self.free[cell]):
            raise ValueError(f"{name} at {cell} is on no free cell")

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
    """Walls as seen from the free cells, which lie to their right: from and to (row, column of a corner), picture."""
    for row, column in np.argwhere(free).tolist():
        corners = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
        neighbours = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        region = (row // _REGION * 4 + column // _REGION) % art.PATTERNS
        for side, neighbour in enumerate(neighbours):
            if not free[neighbour]:
                yield corners[side], corners[(side + 1) % 4], _picture(region, side)


def _picture(pattern: int, side: int) -> str:
    return f"WALL{pattern:X}{side}"


def wad(text: bytes) -> tuple[bytes, int]:
    """A PWAD with one map, MAP01, and all that can be seen in it.

    Args:
      text: of `Map.text`.

    Returns:
      The file, and the offset of the text in it. The engine reads the text anew for each episode.
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
