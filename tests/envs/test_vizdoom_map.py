"""The written files, read again; whether the engine understands them is in test_vizdoom_maze.py."""

from __future__ import annotations

import re
import struct

import cv2
import numpy as np
import pytest

from gunreal.envs import vizdoom_art as art
from gunreal.envs import vizdoom_map
from gunreal.envs.mazes import carve
from gunreal.envs.vizdoom_map import CELL, ITEMS, MAP_BYTES, Map, Thing, wad

FREE = carve(7, 9, 0.3, np.random.default_rng(0))


def blocks(text, kind):
    """The fields of each block of that kind, as strings."""
    found = re.findall(kind + r"\{(.*?)\}", text.decode(), re.DOTALL)
    return [dict(field.split("=") for field in block.replace("\n", "").strip(";").split(";")) for block in found]


def lumps(content):
    """Name and bytes of each lump, in order."""
    magic, count, directory = struct.unpack_from("<4sii", content)
    assert magic == b"PWAD" and directory + 16 * count == len(content)
    entries = struct.iter_unpack("<ii8s", content[directory:])
    return [(name.rstrip(b"\0").decode(), content[start : start + size]) for start, size, name in entries]


def test_walls_surround_free_cells_which_lie_to_their_right():
    text = Map(FREE, []).text((1, 1), 0)
    corners = [(float(v["x"]), float(v["y"])) for v in blocks(text, "vertex")]
    assert len(set(corners)) == len(corners)
    lines, sides = blocks(text, "linedef"), blocks(text, "sidedef")
    seen = set()
    for line in lines:
        (x1, y1), (x2, y2) = (corners[int(line[end])] for end in ("v1", "v2"))
        assert abs(x2 - x1) + abs(y2 - y1) == CELL
        right = np.array([y2 - y1, x1 - x2]) / CELL
        middle = np.array([x1 + x2, y1 + y2]) / 2 / CELL
        column, row_up = np.floor(middle + right / 2).astype(int)
        assert FREE[len(FREE) - 1 - row_up, column]
        column_behind, row_behind = np.floor(middle - right / 2).astype(int)
        assert not FREE[len(FREE) - 1 - row_behind, column_behind]
        seen.add((row_up, column, *right))
    borders = (FREE[1:] != FREE[:-1]).sum() + (FREE[:, 1:] != FREE[:, :-1]).sum()
    assert len(seen) == len(lines) == len(sides) == borders
    assert sorted(int(line["sidefront"]) for line in lines) == list(range(len(sides)))


def test_items_lie_in_the_centers_of_their_cells():
    text = Map(FREE, [Thing("goal", (5, 7)), Thing("apple", (1, 3))]).text((3, 1), 270)
    goal, apple, start = blocks(text, "thing")
    assert (float(goal["x"]), float(goal["y"]), int(goal["type"])) == (7.5 * CELL, 1.5 * CELL, ITEMS["goal"].number)
    assert (float(apple["x"]), float(apple["y"]), int(apple["type"])) == (3.5 * CELL, 5.5 * CELL, ITEMS["apple"].number)
    assert (float(start["x"]), float(start["y"]), int(start["type"])) == (1.5 * CELL, 3.5 * CELL, 1)
    assert int(start["angle"]) == 270 and Map(FREE, []).position((3, 1)) == (1.5 * CELL, 3.5 * CELL)


def test_all_texts_are_as_long():
    largest = carve(25, 25, 0.0, np.random.default_rng(0))
    things = [Thing("apple", (row, column)) for row in range(1, 24, 2) for column in range(1, 11, 2)]
    assert len(Map(FREE, []).text((1, 1), 0)) == len(Map(largest, things).text((1, 1), 0)) == MAP_BYTES


def wall_less():
    free = FREE.copy()
    free[0, 3] = True
    return free


@pytest.mark.parametrize(
    ("free", "things", "start", "message"),
    [
        (FREE.astype(int), [], (1, 1), "bool"),
        (np.zeros(9, bool), [], (1, 1), "3 or more"),
        (np.zeros((2, 9), bool), [], (1, 1), "3 or more"),
        (wall_less(), [], (1, 1), "outermost"),
        (FREE, [Thing("pear", (1, 1))], (1, 1), "unknown item 'pear'; available: apple, goal, lemon"),
        (FREE, [Thing("apple", (0, 1))], (1, 1), "apple at .* not on a free cell"),
        (FREE, [Thing("apple", (1, 9))], (1, 1), "apple at .* not on a free cell"),
        (FREE, [], (-1, 1), "start at .* not on a free cell"),
        (carve(35, 35, 0.0, np.random.default_rng(0)), [], (1, 1), "too large"),
    ],
)
def test_maps_that_the_engine_cannot_load_are_errors(free, things, start, message):
    with pytest.raises(ValueError, match=message):
        Map(free, things).text(start, 0)


def test_the_file_holds_the_map_and_every_picture_that_it_names():
    text = Map(FREE, [Thing("goal", (5, 7))]).text((1, 1), 0)
    content, offset = wad(text)
    found = lumps(content)
    names = [name for name, _ in found]
    assert content[offset : offset + len(text)] == text == dict(found)["TEXTMAP"]
    assert names[-3:] == ["MAP01", "TEXTMAP", "ENDMAP"]
    textures = names[names.index("TX_START") + 1 : names.index("TX_END")]
    used = {side["texturemiddle"].strip('"') for side in blocks(text, "sidedef")}
    assert used | {"FLOOR", "CEILING"} <= set(textures)
    assert all(len(name) <= 8 for name in names) and len(set(names)) == len(names)
    sprites = names[names.index("S_START") + 1 : names.index("S_END")]
    assert sprites == [f"{item.sprite}A0" for item in ITEMS.values()]


def test_every_item_is_defined_with_what_it_gives():
    content, _ = wad(Map(FREE, []).text((1, 1), 0))
    actors = dict(lumps(content))["DECORATE"].decode()
    for item in ITEMS.values():
        actor = re.search(rf"CustomInventory {item.number}\n(.*?)\n}}", actors, re.DOTALL)[1]
        assert f"{item.sprite} A -1" in actor and f'A_GiveInventory("{item.ammo}", 1)' in actor
    assert actors.count("{") == actors.count("}")


@pytest.mark.parametrize("picture", [art.wall(3, 1), art.floor(), art.apple(), art.goal()])
def test_pictures_are_png(picture):
    decoded = cv2.imdecode(np.frombuffer(art.png(picture), np.uint8), cv2.IMREAD_UNCHANGED)
    order = cv2.COLOR_BGR2RGB if picture.shape[2] == 3 else cv2.COLOR_BGRA2RGBA
    assert (cv2.cvtColor(decoded, order) == picture).all()


def test_a_sprite_is_held_at_the_middle_of_its_lower_edge():
    data = art.png(art.goal(), standing=True)
    assert struct.unpack_from(">ii", data, data.index(b"grAb") + 4) == (28, 96)
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED).shape == (96, 56, 4)


def test_walls_differ_in_gray_too_and_darken_from_side_to_side():
    gray = np.array([[art.wall(pattern, side) @ art.GRAY for side in range(4)] for pattern in range(art.PATTERNS)])
    brightness = gray.mean((2, 3))
    assert (np.diff(brightness, axis=1) < -5).all()
    for side in range(4):
        flat = gray[:, side].reshape(art.PATTERNS, -1)
        apart = np.abs(flat[:, None] - flat[None]).mean(2) + 1000 * np.eye(art.PATTERNS)
        assert apart.min() > 8


def test_pictures_have_sides_that_the_engine_can_repeat():
    assert art.HEIGHT & (art.HEIGHT - 1) == 0 and vizdoom_map.WALL_HEIGHT == art.HEIGHT
    for flat in (art.floor(), art.ceiling()):
        assert flat.shape[0] == flat.shape[1] and flat.shape[0] & (flat.shape[0] - 1) == 0
