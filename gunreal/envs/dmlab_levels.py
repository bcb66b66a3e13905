"""Opening of DeepMind Lab levels: options, action sets, the cache of compiled maps, and explanations of Lab's errors.

Source: the public API of `deepmind_lab` (docs/users/python_api.md and actions.md in its repository).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import os
import re
import shutil
import urllib.parse
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.config.schema import ConfigError, close_match, did_you_mean
from gunreal.envs.dmlab_module import load_engine, load_module, reason, why_not_loaded

# Columns: look left/right and down/up (mouse pixels per frame), strafe left/right, move back/forward, fire, jump,
# crouch. 20 pixels per frame turn by 2.1 degrees, or 8.4 degrees in a step of four frames.
_NAVIGATE: dict[str, tuple[int, ...]] = {
    "forward": (0, 0, 0, 1, 0, 0, 0),
    "backward": (0, 0, 0, -1, 0, 0, 0),
    "strafe_left": (0, 0, -1, 0, 0, 0, 0),
    "strafe_right": (0, 0, 1, 0, 0, 0, 0),
    "look_left": (-20, 0, 0, 0, 0, 0, 0),
    "look_right": (20, 0, 0, 0, 0, 0, 0),
}
ACTION_SETS: dict[str, dict[str, tuple[int, ...]]] = {
    "nav6": _NAVIGATE,  # GUNREAL section 4.3: walk in four directions, turn in two
    "impala9": {  # Espeholt et al. 2018, appendix D: for all of DMLab-30, including levels with weapons
        **_NAVIGATE,
        "forward_left": (-20, 0, 0, 1, 0, 0, 0),
        "forward_right": (20, 0, 0, 1, 0, 0, 0),
        "fire": (0, 0, 0, 0, 1, 0, 0),
    },
}
_COLUMNS = (
    *("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", "LOOK_DOWN_UP_PIXELS_PER_FRAME", "STRAFE_LEFT_RIGHT", "MOVE_BACK_FORWARD"),
    *("FIRE", "JUMP", "CROUCH"),
)
_NO_NETWORK = "+set net_enabled 0"  # Lab would open UDP ports on all addresses
LEVELS = (
    *(f"nav_maze_{kind}_0{number}" for kind in ("static", "random_goal") for number in (1, 2, 3)),
    *("seekavoid_arena_01", "stairway_to_melon"),
    *("lt_chasm", "lt_hallway_slope", "lt_horseshoe_color", "lt_space_bounce_hard"),
)
_FOLDER = "baselab/game_scripts/levels"  # of the levels, among Lab's own files
_KINDS: dict[str, type] = {"int": int, "bool": bool, "str": str}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a level, which are the keys of `env_args`.

    Attributes:
      width: width of the rendered image, in pixels. A multiple of 4.
      height: height of the rendered image, in pixels. A multiple of 4.
      actions: a name in `ACTION_SETS`, or a table of names and rows of the same form. Actions are numbered in order.
      action_repeat: number of frames per agent step.
      settings: settings of Lab and of the level, all strings, such as `episodeLengthSeconds = "30"` or `fps = "30"`.
        `minimalUI` is "true" by default, which hides the text on the screen and is 15-25 % faster. `appendCommand`
        switches off Lab's network by default.
      observations: further observations, by Lab's names, such as `DEBUG.POS.TRANS` or `VEL.TRANS`.
      depth: whether to observe depth.
      renderer: "software", or "hardware" for a GPU.
      level_cache: folder of compiled maps. If empty, `gunreal/dmlab` in the user's cache directory.
      level_seeds: number of different seeds given to Lab. Maps drawn from a seed then repeat and are found in the
        cache. 0 gives every episode its own seed.
      runfiles: folder of Lab's own files, if Lab does not find them itself.
      exact: whether to open a new Lab for each episode, which makes episodes exactly repeatable. This is slow, and each
        Lab leaks 3 MB.

    Raises:
      ConfigError: an option is invalid. The message is one line that names the fix.
    """

    width: int = 84
    height: int = 84
    actions: str | Mapping[str, Sequence[int]] = "nav6"
    action_repeat: int = 4
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    observations: Sequence[str] = ()
    depth: bool = False
    renderer: str = "software"
    level_cache: str = ""
    level_seeds: int = 0
    runfiles: str = ""
    exact: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind, value = _KINDS.get(str(field.type)), getattr(self, field.name)
            _require(kind is None or type(value) is kind, field.name, value, f"of type {field.type}")
        for name in ("width", "height"):
            size = getattr(self, name)
            _require(size >= 4 and size % 4 == 0, name, size, "a multiple of 4")
        _require(self.action_repeat >= 1, "action_repeat", self.action_repeat, "at least 1")
        _require(self.level_seeds >= 0, "level_seeds", self.level_seeds, "at least 0")
        _require(self.renderer in ("software", "hardware"), "renderer", self.renderer, "software or hardware")
        _require(isinstance(self.settings, Mapping), "settings", self.settings, "a table of strings")
        for name, value in self.settings.items():
            wanted = f'a string, {name} = "{str(value).lower() if isinstance(value, bool) else value}"'
            _require(isinstance(value, str), f"settings.{name}", value, wanted)
        for name in ("fps", "episodeLengthSeconds"):  # Lab accepts 0, and plays at 60 frames per second or not at all
            value = self.settings.get(name, "1")
            _require(_is_positive(value), f"settings.{name}", value, "a string with a number above 0")
        names = self.observations
        is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        _require(is_list, "observations", names, 'a list of names, ["DEBUG.POS.TRANS"]')


def _require(holds: bool, name: str, value: Any, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"env_args.{name} is {value!r}, but must be {wanted}")


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def make_options(env: str, env_args: Mapping[str, Any], frame_size: int) -> Options:
    """The options of an environment. The default image size is the frame size, rounded up to a multiple of 4.

    Raises:
      ConfigError: `env_args` has an unknown key or a bad value.
    """
    known = [field.name for field in dataclasses.fields(Options)]
    for name in env_args:
        if name not in known:
            hint = close_match(name, known) or f"; available: {', '.join(known)}"
            raise ConfigError(f"unknown env_args.{name} for {env}{hint}")
    size = -(-frame_size // 4) * 4
    return Options(**{"width": size, "height": size, **env_args})


def action_rows(actions: str | Mapping[str, Sequence[int]], spec: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Checks a set of actions against Lab's `action_spec()`.

    Some levels have more columns than the usual seven. They are 0 in rows of seven numbers.

    Args:
      actions: a name in `ACTION_SETS`, or a table of rows by name.
      spec: Lab's `action_spec()`.

    Returns:
      intc `[actions, len(spec)]`, the argument of `Lab.step` for each action.

    Raises:
      ConfigError: the set is unknown, or a row has the wrong length or a number out of bounds.
    """
    if isinstance(actions, str):
        if actions not in ACTION_SETS:
            hint = close_match(actions, ACTION_SETS) or f"; available: {', '.join(ACTION_SETS)}, or a table"
            raise ConfigError(f"unknown action set {actions!r} in env_args.actions{hint}")
        actions = ACTION_SETS[actions]
    is_table = isinstance(actions, Mapping) and len(actions) > 0
    _require(is_table, "actions", actions, "a name or a table with one row per action")
    columns, rows = [column["name"] for column in spec], []
    for name, row in actions.items():
        numbers = isinstance(row, list | tuple) and all(type(number) is int for number in row)
        if numbers and len(row) == len(_COLUMNS) and set(_COLUMNS) < set(columns):
            row = [dict(zip(_COLUMNS, row, strict=True)).get(column, 0) for column in columns]
        wanted = f"{len(spec)} whole numbers: {', '.join(columns)}"
        _require(numbers and len(row) == len(spec), f"actions.{name}", row, wanted)
        for number, column in zip(row, spec, strict=True):
            bounds = f"{column['min']} to {column['max']} in {column['name']}"
            _require(column["min"] <= number <= column["max"], f"actions.{name}", row, bounds)
        rows.append(row)
    return np.array(rows, np.intc)


class LevelCache:
    """A cache on disk for levels that compile a map at reset, which takes 5-20 s. Processes may share it.

    A cache that cannot be written only costs time and causes a warning.
    """

    def __init__(self, folder: str = ""):
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else "~/.cache"  # XDG base directory specification
        self.folder = Path(folder or os.path.join(base, "gunreal", "dmlab")).expanduser()

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies the map of `key` to `pk3_path`. Returns False if there is none."""
        try:
            shutil.copyfile(self._file(key), pk3_path)
        except OSError:
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Stores the map at `pk3_path` under `key`, atomically."""
        target = self._file(key)
        temporary = target.with_name(f".{uuid.uuid4().hex}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(pk3_path, temporary)
            temporary.replace(target)
        except OSError as error:
            failed = f"cannot cache maps in {self.folder}: {error.strerror}"
            warnings.warn(f"{failed}; choose another folder with level_cache", stacklevel=2)
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _file(self, key: str) -> Path:
        return self.folder / urllib.parse.quote(key, safe="")


def open_lab(level: str, options: Options, observations: list[str], cache: LevelCache, folder: str) -> Any:
    """Opens a `deepmind_lab.Lab`, with its temporary files in `folder`. It has not been reset yet.

    Raises:
      ConfigError: Lab rejects the level, a setting or the renderer, or does not find its files.
      ValueError: the level lacks one of the observations.
    """
    if not level:
        raise ConfigError("dmlab/ has no level name; write --env dmlab/nav_maze_static_01")
    module = load_module(level)
    if options.runfiles:
        module.set_runfiles_path(str(Path(options.runfiles).expanduser()))
    load_engine(module.runfiles_path(), options.renderer)
    size = {"width": str(options.width), "height": str(options.height)}
    settings = {**size, "minimalUI": "true", "appendCommand": _NO_NETWORK, **options.settings}
    try:
        return module.Lab(
            level, observations, settings, renderer=options.renderer, level_cache=cache, temp_folder=folder
        )
    except RuntimeError as error:
        raise ConfigError(f"dmlab/{level}: {_explain(level, options, str(error), module.runfiles_path())}") from None


def _explain(level: str, options: Options, error: str, runfiles: str) -> str:
    """Lab's message in one line, with the fix."""
    error = reason(error)
    if "connect" in error:
        missing = f"its runfiles are not in {runfiles}; set their folder with --env_args runfiles=FOLDER"
        return f"{error}: {why_not_loaded(runfiles, options.renderer) or missing}"
    if "Level not found" in error:
        return f"unknown level{_similar(level, Path(runfiles)) or '; levels are named as in game_scripts/levels'}"
    return f"{error}; see env_args.settings" if "setting" in error else error


def _similar(level: str, runfiles: Path) -> str:
    """A suggestion among all levels. Their own names count, and not the folders that they are in."""
    folder = runfiles / _FOLDER
    names = [str(file.relative_to(folder).with_suffix("")) for file in sorted(folder.rglob("*.lua"))]
    known = {name.rpartition("/")[2]: name for name in [*names, *LEVELS]}
    found = difflib.get_close_matches(level.rpartition("/")[2], known, n=1)
    return f"; {did_you_mean(known[found[0]])}" if found else ""


def own_name(env: str) -> str:
    """The environment here that is the same level as one of the package dmlab-gym, or "" if `env` is none of them."""
    found = re.fullmatch(r"(?:dmlab_gym:)?dmlab_gym/(\w+)(?:-v\d+)?", env)
    if not found:
        return ""
    return f"dmlab/{found[1]}" if found[1] in LEVELS else f"dmlab/contributed/dmlab30/{found[1]}"
