"""The games: what each is played with, how it starts, and what its memory says (games.toml)."""

from __future__ import annotations

import difflib
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from gunreal.emulator.rules import VARIABLES

CARTRIDGES = ("2K", "4K", "F8", "F6", "F8SC", "F6SC", "E0", "FE")
NOOP, RESET, SELECT = 0, 40, 41
ACTIONS = ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE",
           "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE",
           "DOWNLEFTFIRE")  # fmt: skip
_TABLE = Path(__file__).parent / "games.toml"


class UnknownGame(ValueError):
    """No such game, or one that the emulator refuses; the message is one line."""


@dataclass(frozen=True)
class Game:
    """One game as games.toml describes it; the fields are explained there."""

    name: str
    cartridge: str
    actions: tuple[int, ...]
    start: tuple[int, ...]
    score: str
    lives: str
    over: str
    flag: str = ""
    reward: str = ""
    initial: tuple[int, ...] = (0,) * len(VARIABLES)
    paddles: int = 0
    pal: bool = False
    first_line: int = 34
    height: int = 210
    hmove_blanks: bool = True


@functools.cache
def _table() -> dict:
    with _TABLE.open("rb") as file:
        return tomllib.load(file)


def games() -> list[str]:
    """Names of the games that are claimed: equal to ale-py in every frame of the verification."""
    return sorted(_table()["game"])


def refused() -> dict[str, str]:
    """Games of ale-py that are not claimed, and why."""
    return dict(_table()["refused"])


def find_game(name: str) -> Game:
    """The game of a name such as "pong", "Pong", "ALE/Pong-v5" or "gunreal/MsPacman".

    Raises:
      UnknownGame: one line that says why, and what is close.
    """
    key = _key(name)
    table = {_key(known): known for known in _table()["game"]}
    if key in table:
        return _game(table[key])
    for known, why in refused().items():
        if key == _key(known):
            raise UnknownGame(f"{name}: the emulator does not play {known} ({why}); use --emulator ale")
    close = difflib.get_close_matches(key, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(table[k] for k in close)}? " if close else ""
    raise UnknownGame(f"unknown game {name!r}: {hint}({len(table)} games: gunreal.emulator.games())")


def _key(name: str) -> str:
    short = name.rsplit("/", 1)[-1]
    head, _, tail = short.rpartition("-v")
    if head and tail.isdigit():
        short = head
    return short.lower().replace("_", "").replace("-", "").removesuffix("noframeskip")


@functools.cache
def _game(name: str) -> Game:
    entry = dict(_table()["game"][name])
    start = [action for run in entry.pop("start").split() for action in _run(run)]
    initial = entry.pop("initial", {})
    entry["initial"] = tuple(initial.get(variable, 0) for variable in VARIABLES)
    entry["actions"] = tuple(range(18)) if entry["actions"] == "all" else tuple(entry["actions"])
    return Game(name=name, start=tuple(start), **entry)


def _run(text: str) -> list[int]:
    """`RESET*4` as four actions."""
    action, _, count = text.partition("*")
    number = {"RESET": RESET, "SELECT": SELECT}.get(action)
    return [ACTIONS.index(action) if number is None else number] * int(count or 1)
