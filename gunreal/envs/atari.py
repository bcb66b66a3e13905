"""Atari 2600 games (`ALE/Pong-v5`, ...) as gray or RGB frames.

Each step skips 4 frames and takes the maximum over the last two. Rewards are not clipped.

The module uses gunreal's emulator or `ale_py.ALEInterface`, as `--emulator` says. The episodes of
`ale_py.vector_env.AtariVectorEnv` depend on more than their seed unless the ROM is loaded again. `loadROM` takes 85 ms,
which is longer than a beginner's whole episode of Breakout. Here a reset restores the saved start state, which takes
about 1 ms including no-ops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gunreal_emulator.games import ACTIONS
from gunreal_emulator.settings import PROTOCOLS
from gymnasium import spaces

from gunreal.config.packages import package
from gunreal.config.schema import Config, ConfigError, did_you_mean, is_auto
from gunreal.config.values import is_number
from gunreal.envs.generic import similar
from gunreal.envs.raw import Raw
from gunreal.envs.resize import AreaResize
from gunreal.envs.step import Step

_DEFAULTS = {"full_action_space": False, "mode": None, "difficulty": None, "frameskip": 4,
             "max_num_frames_per_episode": 108_000, "terminal_on_life_loss": False}  # fmt: skip
_NOOP = 0  # of ale-py's actions
_EXTRA = {"lives": "lives", "ram": "getRAM", "rgb": "getScreenRGB"}


class AtariEnv:
    """`num_envs` Atari consoles that step one after the other. See `VectorEnv`.

    Attributes:
      emulator: "own" or "ale".
    """

    dtype = "uint8"

    def __init__(self, config: Config, num_envs: int, extra_keys: Sequence[str] = ()):
        if unknown := set(extra_keys) - set(_EXTRA):
            raise ConfigError(f"{config.env} cannot record {sorted(unknown)}; available: {sorted(_EXTRA)}")
        for name in ("image_key", "vector_keys"):
            if not is_auto(config, name):
                given = getattr(config, name)
                raise ConfigError(f"{name} {given!r}: {config.env} has no Dict observation; leave it out")
        game, options = game_options(config)
        self.num_envs = num_envs
        channels, size = 3 if config.observation == "rgb" else 1, config.frame_size
        self.frame: tuple[int, ...] = (channels, size, size)
        self._consoles = [_Console(_open(config.emulator, game, options), options, channels) for _ in range(num_envs)]
        self.emulator = "own" if self._consoles[0].is_own else "ale"
        screen = self._consoles[0].start_screen.shape
        numbers = [getattr(action, "value", action) for action in self._consoles[0].actions]  # ale-py has an enum
        names = tuple(ACTIONS[number].lower() for number in numbers)
        self.raw = Raw(spaces.Box(0, 255, screen, np.uint8), actions=names)
        # Shared by all consoles, so that it stays in the processor's cache.
        self._screens, self._resize = np.empty((2, *screen), np.uint8), AreaResize(screen, (size, size))
        self.num_actions = len(self._consoles[0].actions)
        self._extra_keys, self._ends_with_a_life = extra_keys, options["terminal_on_life_loss"]

    def step(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> Step:
        """Steps all copies. See `VectorEnv`."""
        n = self.num_envs
        frame = np.empty((n, *self.frame), np.uint8)
        reward, (terminated, truncated, lost) = np.zeros(n, np.float32), np.zeros((3, n), bool)
        for i, console in enumerate(self._consoles):
            if reset[i]:
                console.reset(int(seeds[i]), self._screens[0])
            else:
                lives = console.ale.lives() if self._ends_with_a_life else 0
                reward[i], terminated[i], truncated[i] = console.step(int(actions[i]), self._screens)
                lost[i] = lives and console.ale.lives() < lives
            self._resize(self._screens[0], frame[i])
        extra = {key: np.stack([getattr(c.ale, _EXTRA[key])() for c in self._consoles]) for key in self._extra_keys}
        return Step(frame, reward, terminated, truncated, extra, lost & ~(terminated | truncated))

    def close(self) -> None:
        """Frees the consoles."""
        self._consoles.clear()


class AtariGame(gymnasium.Env):
    """A game as a Gymnasium environment, with the frame skip and the protocol of a run.

    Observation: the whole screen, uint8 `[210, 160]` (250 rows in a few games), or `[210, 160, 3]` with `--observation
    rgb`. It is the maximum over the last two frames, as in training. Actions: those of training. Rewards: not clipped.
    An episode is a pure function of the seed of its reset and its actions, and equals training's.
    """

    def __init__(self, config: Config):
        game, options = game_options(config)
        channels = 3 if config.observation == "rgb" else 1
        self._console = _Console(_open(config.emulator, game, options), options, channels)
        screen = self._console.start_screen.shape
        self._screens = np.empty((2, *screen), np.uint8)
        self.observation_space = spaces.Box(0, 255, screen, np.uint8)
        self.action_space = spaces.Discrete(len(self._console.actions))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the episode of `seed`, or of a random seed."""
        super().reset(seed=seed)
        self._console.reset(int(self.np_random.integers(2**31)) if seed is None else seed, self._screens[0])
        return self._screens[0].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Holds an action for `frameskip` frames and sums their rewards."""
        reward, terminated, truncated = self._console.step(int(action), self._screens)
        return self._screens[0].copy(), float(reward), terminated, truncated, {}


class _Console:
    """One game: an ALE instance or a stand-in for it, and its random generator."""

    def __init__(self, ale: Any, options: dict, channels: int):
        self.ale = ale
        ale.reset_game()
        ale.act(_NOOP)  # the screen can be half drawn after a reset, and saved states do not hold that
        self._get_screen = ale.getScreenRGB if channels == 3 else ale.getScreenGrayscale
        self._start, self.start_screen = ale.cloneState(include_rng=True), self._get_screen()
        self.actions = ale.getLegalActionSet() if options["full_action_space"] else ale.getMinimalActionSet()
        self._skip, self._sticky = options["frameskip"], options["repeat_action_probability"]
        self._noop_max = options["noop_max"]
        self.is_own = hasattr(ale, "play")  # several frames in one call

    def reset(self, seed: int, screen: np.ndarray) -> None:
        """Starts the episode of `seed` and writes its first screen to `screen`."""
        self._rng = np.random.default_rng(seed)
        self._held = _NOOP
        self.ale.restoreState(self._start)
        screen[:] = self.start_screen  # ALE itself still holds the screen of the last episode
        if noops := self._rng.integers(self._noop_max):  # the start state already includes one
            for _ in range(noops):
                self.ale.act(_NOOP)
            self._get_screen(screen)

    def step(self, action: int, screens: np.ndarray) -> tuple[float, bool, bool]:
        """Emulates `frameskip` frames and writes the screen to the first of two `screens`.

        Returns:
          Reward, terminated, truncated.
        """
        sticky = self._rng.random(self._skip) < self._sticky if self._sticky else None
        held = []
        for k in range(self._skip):
            if sticky is None or not sticky[k]:
                self._held = self.actions[action]
            held.append(self._held)
        reward = self.ale.play(held, screens[0]) if self.is_own else self._play(held, screens)
        terminated = self.ale.game_over(with_truncation=False)
        return reward, terminated, self.ale.game_truncated() and not terminated

    def _play(self, actions: list[int], screens: np.ndarray) -> int:
        ale, (even, odd) = self.ale, screens
        reward = 0
        for k, action in enumerate(actions):
            reward += ale.act(action)
            if ale.game_over():
                self._get_screen(even)
                odd[:] = even
                break
            if k >= self._skip - 2:
                self._get_screen(odd if k % 2 else even)
        if self._skip > 1:  # sprites flicker, as some are drawn on every other frame only
            np.maximum(even, odd, out=even)
        return reward


def why_ale(config: Config) -> str:
    """Returns in one line why `--emulator auto` uses ale-py. Empty if it does not."""
    if is_auto(config, "emulator") and config.env.startswith("ALE/"):
        try:
            _open("own", _game(config), _options(config))
        except ConfigError as error:
            return f"--emulator auto uses ale-py: {error}"
    return ""


def _open(emulator: str, game: str, options: dict) -> Any:
    """Loads the game with `emulator`. It is not reset yet."""
    limit, mode, difficulty = (options[key] for key in ("max_num_frames_per_episode", "mode", "difficulty"))
    if emulator != "ale":
        from gunreal_emulator import EmulatorUnavailable
        from gunreal_emulator.ale import OwnALE

        try:
            return OwnALE(game, mode, difficulty or 0, limit)
        except (ValueError, EmulatorUnavailable) as error:
            if emulator == "own":
                raise ConfigError(re.sub(r"(use|or) ale-py$", r"\1 --emulator ale", str(error))) from None
    return _loaded_ale(game, mode, difficulty, limit)


def _loaded_ale(game: str, mode: int | None, difficulty: int | None, limit: int) -> Any:
    """Loads a game into ale-py's emulator, which is not reset yet."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)  # ALE's own sticky actions cannot be seeded without loadROM
    ale.setInt("random_seed", 0)
    ale.setInt("max_num_frames_per_episode", limit)
    rom: Any = ale_py.roms.get_rom_path(game)
    ale.loadROM(rom)
    for name, value, known, choose in (
        ("mode", mode, ale.getAvailableModes(), ale.setMode),
        ("difficulty", difficulty, ale.getAvailableDifficulties(), ale.setDifficulty),
    ):
        if value is not None and value not in known:
            raise ConfigError(f"{game} has no {name} {value}; use one of {', '.join(map(str, known))}")
        if value is not None:
            choose(value)
    return ale


def game_options(config: Config) -> tuple[str, dict]:
    """The name of the ROM of `config.env`, and the options of its protocol, overridden by `env_args`."""
    return _game(config), _options(config)


def _game(config: Config) -> str:
    """The name of the ROM of `config.env`."""
    gymnasium.register_envs(package("ale_py", f"{config.env} needs the package ale-py; run pip install ale-py"))
    if config.env in gymnasium.registry:
        return gymnasium.registry[config.env].kwargs["game"]
    games = [name for name in gymnasium.registry if name.startswith("ALE/")]
    close = [name for name in similar(config.env) if name in games] or ["an id such as ALE/Pong-v5"]
    raise ConfigError(f"unknown game {config.env!r}: {did_you_mean(*close)} (ale-py has {len(games)} games)")


def _options(config: Config) -> dict:
    """The options of the protocol, overridden by `env_args`."""
    if config.protocol not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {config.protocol!r}; available: {sorted(PROTOCOLS)}")
    noops, sticky = PROTOCOLS[config.protocol]
    options: dict = {**_DEFAULTS, "repeat_action_probability": sticky, "noop_max": noops}
    if unknown := set(config.env_args) - set(options):
        raise ConfigError(f"unknown env_args {sorted(unknown)} for {config.env}; available: {sorted(options)}")
    for name, value in config.env_args.items():
        _check_option(name, value)
    options |= config.env_args
    # ALE needs one no-op frame, because its saved states do not hold a screen that is half drawn.
    return {**options, "noop_max": max(options["noop_max"], 1)}


def _check_option(name: str, value: Any) -> None:
    if name in ("full_action_space", "terminal_on_life_loss"):
        fits, wanted = isinstance(value, bool), "true or false"
    elif name == "repeat_action_probability":
        fits, wanted = is_number(value) and 0 <= value <= 1, "a number from 0 to 1"
    else:
        least = 1 if name == "frameskip" else 0
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        wanted = f"a whole number of at least {least}"
    if not fits:
        raise ConfigError(f"env_args.{name} is {value!r}, but must be {wanted}")
