"""The supported games, as described in games.toml: cartridge, actions, start, and rules for score, lives and end."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gunreal.emulator.rules import VARIABLES

CARTRIDGES = ("2K", "4K", "F8", "F6", "F8SC", "F6SC", "E0", "FE")
NOOP, RESET, SELECT = 0, 40, 41
ACTIONS = ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE",
           "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE",
           "DOWNLEFTFIRE")  # fmt: skip
_TABLE = Path(__file__).parent / "games.toml"


class UnknownGame(ValueError):
    """The game, mode or difficulty does not exist or is not supported. The message is one line that names the fix."""


@dataclass(frozen=True)
class Game:
    """A game. games.toml explains the fields."""

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
    paddle_high: int = 790_196
    pal: bool = False
    first_line: int = 34
    height: int = 210
    hmove_blanks: bool = True
    right_port: bool = False
    ignored: tuple[int, ...] = ()
    modes: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})

    def start_of(self, mode: int | None = None) -> tuple[int, ...]:
        """Returns the actions that select a mode, by default the first one, and start the game.

        Raises:
          UnknownGame: the mode does not exist or is not supported.
        """
        mode = next(iter(self.modes)) if mode is None else mode
        if mode not in self.modes:
            known = ", ".join(map(str, self.modes))
            raise UnknownGame(f"mode {mode} of {self.name} is not supported; use one of {known}, or --emulator ale")
        return self.modes[mode] + self.start


@functools.cache
def _table() -> dict:
    with _TABLE.open("rb") as file:
        return tomllib.load(file)


def games() -> list[str]:
    """Returns the names of the supported games, which behave exactly like ale-py in the verification."""
    return sorted(_table()["game"])


def refused() -> dict[str, str]:
    """Returns the games of ale-py that are not supported, each with the reason."""
    return dict(_table()["refused"])


def find_game(name: str) -> Game:
    """Returns the game with a name such as "pong", "Pong", "ALE/Pong-v5" or "gunreal/MsPacman".

    Raises:
      UnknownGame: the game does not exist or is not supported.
    """
    key = _key(name)
    table = {_key(known): known for known in _table()["game"]}
    if key in table:
        return _game(table[key])
    for known, why in refused().items():
        if key == _key(known):
            raise UnknownGame(f"{name} is not supported by the own emulator ({why}); use --emulator ale")
    close = difflib.get_close_matches(key, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(table[k] for k in close)}? " if close else ""
    raise UnknownGame(f"unknown game {name!r}; {hint}gunreal.emulator.games() lists all {len(table)} games")


def _key(name: str) -> str:
    short = name.rsplit("/", 1)[-1]
    head, _, tail = short.rpartition("-v")
    if head and tail.isdigit():
        short = head
    return short.lower().replace("_", "").replace("-", "").removesuffix("noframeskip")


@functools.cache
def _game(name: str) -> Game:
    entry = dict(_table()["game"][name])
    pause, hold = entry.pop("pause", 2), entry.pop("hold", 0)
    start, press = _expand(entry.pop("start")), [SELECT] * hold if hold else [NOOP] * pause + [SELECT]
    press.append(NOOP)
    modes = {int(mode): tuple(_expand(how) if isinstance(how, str) else press * how)
             for mode, how in entry.pop("modes", {"0": 0}).items()}  # fmt: skip
    initial = entry.pop("initial", {})
    entry["initial"] = tuple(initial.get(variable, 0) for variable in VARIABLES)
    entry["ignored"] = tuple(entry.get("ignored", ()))
    entry["actions"] = tuple(range(18)) if entry["actions"] == "all" else tuple(entry["actions"])
    return Game(name=name, start=tuple(start), modes=modes, **entry)


def _expand(text: str) -> list[int]:
    """Expands actions such as `(SELECT*2 NOOP)*3 RESET*4 FIRE`."""
    flat = re.sub(r"\((.+?)\)\*(\d+)", lambda group: f"{group[1]} " * int(group[2]), text)
    return [action for run in flat.split() for action in _run(run)]


def _run(text: str) -> list[int]:
    """Expands an action with a count, such as `RESET*4`."""
    action, _, count = text.partition("*")
    number = {"RESET": RESET, "SELECT": SELECT}.get(action)
    return [ACTIONS.index(action) if number is None else number] * int(count or 1)
