"""The supported games, as described in games.toml: cartridge, actions, start, and rules for score, lives and end."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gunreal_emulator.rules import VARIABLES

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
    difficulties: tuple[int, ...] = (0,)
    modes: dict[int, list[tuple[int, ...]]] = field(default_factory=lambda: {0: [()]})
    frames: tuple[int, ...] = ()

    @property
    def legal_actions(self) -> tuple[int, ...]:
        """The full action set of ale-py, which leaves out the actions that a game ignores."""
        return tuple(action for action in range(len(ACTIONS)) if action not in self.ignored)

    def start_of(self, mode: int | None = None, difficulty: int = 0) -> tuple[int, ...]:
        """Returns the actions that select a mode, by default the first one, and start the game.

        Raises:
          UnknownGame: the mode does not exist or is not supported.
        """
        return self._choice_of(mode, difficulty) + self.start

    def start_frames(self, mode: int | None = None, difficulty: int = 0) -> int:
        """Returns how many of these actions are frames of the episode. Raises as `start_of` does."""
        choice = self._choice_of(mode, difficulty)
        if self.frames:
            return self.frames[0 if mode is None else list(self.modes).index(mode)]
        return sum(action not in (RESET, SELECT) for action in choice)

    def _choice_of(self, mode: int | None, difficulty: int) -> tuple[int, ...]:
        mode = next(iter(self.modes)) if mode is None else mode
        if mode not in self.modes:
            known = ", ".join(map(str, self.modes))
            raise UnknownGame(f"mode {mode} of {self.name} is not supported; use one of {known}, or ale-py")
        ways = self.modes[mode]
        return ways[difficulty % len(ways)]


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
    if not isinstance(name, str):
        raise UnknownGame(f"the game is {name!r}, but must be a name such as 'pong'")
    key = _key(name)
    table = {_key(known): known for known in _table()["game"]}
    if key in table:
        return _game(table[key])
    for known, why in refused().items():
        if key == _key(known):
            raise UnknownGame(f"{name} is not supported by the own emulator ({why}); use ale-py")
    close = difflib.get_close_matches(key, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(table[k] for k in close)}? " if close else ""
    raise UnknownGame(f"unknown game {name!r}; {hint}gunreal_emulator.games() lists all {len(table)} games")


def _key(name: str) -> str:
    short = name.rsplit("/", 1)[-1]
    head, _, tail = short.rpartition("-v")
    if head and tail.isdigit():
        short = head
    return short.lower().replace("_", "").replace("-", "").removesuffix("noframeskip")


@functools.cache
def _game(name: str) -> Game:
    entry = dict(_table()["game"][name])
    start, modes = _expand(entry.pop("start")), _modes(entry)
    initial = entry.pop("initial", {})
    entry["initial"] = tuple(initial.get(variable, 0) for variable in VARIABLES)
    entry["ignored"] = tuple(entry.get("ignored", ()))
    entry["frames"] = tuple(entry.get("frames", ()))
    entry["difficulties"] = tuple(entry.get("difficulties", (0,)))
    entry["actions"] = tuple(range(18)) if entry["actions"] == "all" else tuple(entry["actions"])
    return Game(name=name, start=start, modes=modes, **entry)


def _modes(entry: dict) -> dict[int, list[tuple[int, ...]]]:
    """Takes the modes out of a game's entry. Each has its actions for all difficulties, or for each one."""
    press = f"(SELECT*{entry.pop('hold', 2)} NOOP)"
    modes = {}
    for mode, how in entry.pop("modes", {"0": 0}).items():
        ways = how if isinstance(how, list) else [how]
        modes[int(mode)] = [_expand(way if isinstance(way, str) else f"{press}*{way}") for way in ways]
    single = dict(modes)
    for position in range(1, entry.pop("positions", 0) + 1):
        choice = _expand(f"RIGHT*{max(0, 16 * position - 17)}")  # the first one needs no choice
        for mode, ways in single.items():
            modes[100 * position + mode] = [way + choice for way in ways]
    return modes


def _expand(text: str) -> tuple[int, ...]:
    """Expands actions such as `(SELECT*2 NOOP)*3 RESET*4 FIRE`."""
    flat = re.sub(r"\((.+?)\)\*(\d+)", lambda group: f"{group[1]} " * int(group[2]), text)
    return tuple(action for run in flat.split() for action in _run(run))


def _run(text: str) -> list[int]:
    """Expands an action with a count, such as `RESET*4`."""
    action, _, count = text.partition("*")
    number = {"RESET": RESET, "SELECT": SELECT}.get(action)
    return [ACTIONS.index(action) if number is None else number] * int(count or 1)
