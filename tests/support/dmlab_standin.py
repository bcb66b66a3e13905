"""A stand-in for the module `deepmind_lab`: its API with its types and errors, around a little world of our own.

A field of 1000 x 1000 units without walls, on which good things and bad things (in the mazes: apples and a goal) lie at
places that the seed decides. It keeps to the real API where that is strict: what raises there raises here.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

SIZE, SPEED, REACH = 1000.0, 320.0, 60.0  # units, units a second, units
_DEGREES = 0.11 * 0.96  # a frame, for a pixel a frame of looking at 60 frames a second
_ACTIONS = (
    ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", -512, 512),
    ("LOOK_DOWN_UP_PIXELS_PER_FRAME", -512, 512),
    ("STRAFE_LEFT_RIGHT", -1, 1),
    ("MOVE_BACK_FORWARD", -1, 1),
    ("FIRE", 0, 1),
    ("JUMP", 0, 1),
    ("CROUCH", 0, 1),
)
_runfiles = str(Path(__file__).parent)


class Level(NamedTuple):
    """What the levels differ in: the rewards of the things that lie there, and how an episode goes.

    Attributes:
      seconds: by the clock.
      things: rewards; a thing of 10 is a goal, where everything begins anew at another place.
      compiled: whether a map is made at reset.
      clock: whether FRAMES_REMAINING_AT_60 is observed.
      deadly: whether a jump ends the episode.
      columns: numbers of an action.
      broken: what goes wrong at a reset: "no map", "exit" or "abort".
    """

    seconds: float
    things: tuple[int, ...]
    compiled: bool = False
    clock: bool = True
    deadly: bool = False
    columns: int = 7
    broken: str = ""


LEVELS = {
    "nav_maze_static_01": Level(60, (1, 1, 1, 1, 1, 10)),
    "seekavoid_arena_01": Level(20, (1,) * 12 + (-1,) * 8),
    "contributed/dmlab30/rooms_watermaze": Level(120, (10,)),
    "contributed/dmlab30/explore_goal_locations_small": Level(90, (10,), compiled=True),
    "standin/deadly": Level(60, (), deadly=True),
    "standin/nine_columns": Level(60, (), columns=9),
    "standin/no_map": Level(60, (), broken="no map"),
    "standin/exits": Level(60, (), broken="exit"),
    "standin/aborts": Level(60, (), broken="abort"),
    "standin/no_clock": Level(60, (), clock=False, deadly=True),
}


def runfiles_path() -> str:
    """Where Lab's own files are."""
    return _runfiles


def set_runfiles_path(path: str) -> bool:
    """Says where Lab's own files are."""
    global _runfiles
    _runfiles = _typed(path, str)
    return True


def _typed(value, kind):
    if not isinstance(value, kind):
        raise TypeError(f"argument must be {kind.__name__}, not {type(value).__name__}")
    return value


class Lab:
    """An instance of a level."""

    def __init__(self, level, observations, config=None, renderer="software", level_cache=None, temp_folder=None):
        _typed(level, str), _typed(observations, list), _typed({} if config is None else config, dict)
        self._status, self._resets = "closed", 0
        if _typed(renderer, str) not in ("software", "hardware"):
            raise RuntimeError(
                f'Failed to set renderer must be "hardware" or "software" actual "{renderer}"!'  # as there
            )
        if not Path(_runfiles).is_dir():
            raise RuntimeError("Failed to connect RL API")
        self._settings = {"width": "320", "height": "240", "fps": "60", "minimalUI": "false", "mixerSeed": "0"}
        self._settings["appendCommand"] = ""
        self._unknown = {}
        for key, value in (config or {}).items():
            self._set(_typed(key, str), _typed(value, str))
        if level not in LEVELS:
            reason = f"Level not found: cannot open {_runfiles}/{level}.lua: No such file or directory"
            raise RuntimeError(f'Failed to init environment - "{reason}"')
        self._level, self._cache = LEVELS[level], level_cache
        self._seconds = float(self._unknown.pop("episodeLengthSeconds", self._level.seconds))
        for key, value in self._unknown.items():
            trace = "stack traceback:\n\t[C]: in function 'error'"
            raise RuntimeError(f'Failed to init environment - "Invalid setting: "{key}" = "{value}"\n{trace}"')
        self._names = observations
        known = [spec["name"] for spec in self._spec()]
        for name in observations:
            if _typed(name, str) not in known:
                raise ValueError(f"Unknown observation '{name}'.")
        self._fps = float(self._settings["fps"])
        self._status = "uninitialized"

    def _set(self, key, value):
        reason = ""
        if key in ("width", "height") and (not value.isdigit() or int(value) < 4 or int(value) % 4):
            reason = f"'{key}' must be a positive multiple of 4. Actual {value}"
        if key == "minimalUI" and value not in ("true", "false"):
            reason = f'Invalid boolean arg must be either "true" or "false"; actual "{value}"\n'
        if reason:
            raise RuntimeError(f"Failed to apply setting '{key} = {value}' - \"{reason}\"")
        (self._settings if key in self._settings else self._unknown)[key] = value

    def observation_spec(self):
        """What there is to observe: name, dtype and shape of each; text has no shape, a 0 is an unknown size."""
        os.write(2, b"Using deprecated observation format: 'RGB_INTERLACED'\n")  # as there
        return self._spec()

    def _spec(self):
        height, width = int(self._settings["height"]), int(self._settings["width"])
        pixels = {"RGB_INTERLEAVED": (height, width, 3), "RGBD_INTERLEAVED": (height, width, 4)}
        pixels |= {"RGB": (3, height, width), "RGBD": (4, height, width)}
        numbers = {"VEL.TRANS": (3,), "VEL.ROT": (3,), "DEBUG.POS.TRANS": (3,), "DEBUG.POS.ROT": (3,)}
        numbers |= {"DEBUG.PLAYERS.HEALTH": (0,)} | ({"FRAMES_REMAINING_AT_60": (1,)} if self._level.clock else {})
        return [
            *({"name": name, "shape": shape, "dtype": np.uint8} for name, shape in pixels.items()),
            *({"name": name, "shape": shape, "dtype": np.float64} for name, shape in numbers.items()),
            {"name": "INSTR", "shape": (), "dtype": str},
        ]

    def action_spec(self):
        """The numbers of an action: seven, and in some levels more."""
        more = [("SWITCH_GADGET", 0, 1), ("CHANGE_GADGET", 0, 9)][: self._level.columns - len(_ACTIONS)]
        return [{"name": name, "min": low, "max": high} for name, low, high in (*_ACTIONS[:2], *more, *_ACTIONS[2:])]

    def reset(self, episode=-1, seed=None):
        """Begins an episode. Only the first one of an instance follows from its seed alone."""
        _typed(episode, int)
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__module__}.{type(seed).__name__}'.")
        if seed is not None and not -(2**31) <= seed < 2**31:
            raise OverflowError("signed integer is greater than maximum")
        trace = "stack traceback:\n\t[C]: in function 'error'\n\ttimeout.lua:58: in function"
        if self._level.broken == "abort":
            error = "terminate called after throwing an instance of 'std::runtime_error'"
            print(f"{error}\n{trace}", file=sys.stderr, flush=True)
            os.abort()
        if self._level.broken == "exit":
            os._exit(1)
        if self._status == "closed" or self._level.broken:
            raise RuntimeError(f'Failed to start environment - "no map\n\tof that name\n{trace}"')
        self._rng = np.random.default_rng([abs(seed) if seed is not None else hash(object()), 7])
        if self._level.compiled:
            self._compile(seed)
        self._lay_out()
        self._z = 39.0 if self._resets else 25.125  # in a new instance the player falls from the sky
        self._yaw += 0.5 * self._resets
        self._frames, self._velocity, self._turn = 0, np.zeros(2), 0.0
        self._resets += 1
        self._status = "running"
        return True

    def _compile(self, seed):
        key = f"map_noaas_{seed}"
        with tempfile.TemporaryDirectory() as folder:
            pk3 = Path(folder, "map.pk3")
            if self._cache is None or not self._cache.fetch(key, str(pk3)):
                pk3.write_text(key)
                if self._cache is not None:
                    self._cache.write(key, str(pk3))
            if pk3.read_text() != key:
                raise RuntimeError(f"the wrong map: {pk3.read_text()}")

    def _lay_out(self):
        self._position = self._rng.uniform(100, SIZE - 100, 2)
        self._yaw = float(self._rng.uniform(-180, 180))
        places = self._rng.uniform(0, SIZE, (len(self._level.things), 2))
        self._things = [(*place, reward) for place, reward in zip(places, self._level.things, strict=True)]

    def is_running(self):
        """Whether the episode goes on."""
        return self._status == "running"

    def step(self, action, num_steps=1):
        """Holds an action for so many frames, or to the end; returns the rewards' sum."""
        _typed(action, np.ndarray), _typed(num_steps, int)
        if not self.is_running():
            raise RuntimeError("Environment in wrong status to advance.")
        columns = [column["name"] for column in self.action_spec()]
        if action.shape != (len(columns),):
            raise ValueError(f"action must have shape ({len(columns)})")
        if action.dtype != np.intc:
            raise ValueError("action must have dtype np.intc")
        reward, numbers = 0, dict(zip(columns, action.tolist(), strict=True))
        for _ in range(num_steps):
            reward += self._frame(*(numbers[name] for name, _, _ in _ACTIONS))
            if self._frames >= round(self._seconds * self._fps) or (self._level.deadly and action[5]):
                self._status = "terminated"
                break
        return float(reward)

    def _frame(self, look, _, strafe, move, *__):
        self._frames += 1
        self._turn = -look * _DEGREES
        self._yaw = (self._yaw + self._turn * 60 / self._fps + 180) % 360 - 180
        heading = np.array([math.cos(math.radians(self._yaw)), math.sin(math.radians(self._yaw))])
        right = np.array([heading[1], -heading[0]])
        self._velocity = SPEED * (move * heading + strafe * right)
        self._position = np.clip(self._position + self._velocity / self._fps, 0, SIZE)
        near = [thing for thing in self._things if math.dist(thing[:2], self._position) < REACH]
        for thing in near:
            self._things.remove(thing)
        if any(reward == 10 for *_, reward in near):
            self._lay_out()
        return sum(reward for *_, reward in near)

    def observations(self):
        """The observations that were asked for, by name."""
        if not self.is_running():
            raise RuntimeError("Environment in wrong status for call to observations()")
        return {name: self._observation(name) for name in self._names}

    def _observation(self, name):
        yaw = math.radians(self._yaw)
        if name.startswith("RGB"):
            image = self._draw()[..., : 4 if "D" in name.split("_")[0] else 3]
            return image.copy() if name.endswith("_INTERLEAVED") else image.transpose(2, 0, 1).copy()
        if name == "VEL.TRANS":
            x, y = self._velocity
            return np.array([x * math.cos(yaw) + y * math.sin(yaw), y * math.cos(yaw) - x * math.sin(yaw), 0.0])
        numbers = {
            "VEL.ROT": [0.0, self._turn * 60, 0.0],
            "DEBUG.POS.TRANS": [*self._position, self._z],
            "DEBUG.POS.ROT": [0.0, self._yaw, 0.0],
            "DEBUG.PLAYERS.HEALTH": [100.0],
            "FRAMES_REMAINING_AT_60": [60 * (self._seconds - self._frames / self._fps)],
        }
        return np.array(numbers[name]) if name in numbers else "Find the goal."

    def _draw(self):
        """uint8 `[height, width, 4]`: sky and ground by heading and place."""
        height, width = int(self._settings["height"]), int(self._settings["width"])
        image = np.empty((height, width, 4), np.uint8)
        angles = np.radians(self._yaw + np.linspace(45, -45, width))
        image[..., 0] = 127 + 120 * np.sin(3 * angles)
        image[..., 1] = np.linspace(250 * self._position[0] / SIZE, 90, height)[:, None]
        image[..., 2] = self._position[1] / SIZE * 200 + self._z
        image[..., 3] = 255 / np.linspace(0.1, 2, height).clip(1)[:, None]
        return image

    def close(self):
        """Ends it; False where it was closed before."""
        was_open, self._status = self._status != "closed", "closed"
        return was_open
