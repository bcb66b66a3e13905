"""Atari games as functional environments, on the library's own emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from gunreal_emulator import EmulatorUnavailable, UnknownGame
from gymnasium import spaces

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.atari import game_options


class AtariFunctional:
    """`num_envs` consoles of the game `config.env`. The observations have the frame size. See `FunctionalEnv`.

    Attributes:
      version: version of the emulator, on which the contents of the state depend.

    Raises:
      ConfigError: the emulator does not support the game or an option, or cannot be compiled.
    """

    def __init__(self, config: Config, num_envs: int):
        game, options = game_options(config)
        if options.pop("terminal_on_life_loss"):
            raise ConfigError("env_args.terminal_on_life_loss does not work with --runner device; leave it out")
        from gunreal_emulator.build import source_hash
        from gunreal_emulator.ffi import DeviceAtari

        options["frame_skip"] = options.pop("frameskip")
        options["difficulty"] = options["difficulty"] or 0
        options |= {"size": (config.frame_size, config.frame_size), "grayscale": config.observation == "gray"}
        try:
            self._games = DeviceAtari(game, num_envs, **options)
        except (UnknownGame, EmulatorUnavailable) as error:
            raise ConfigError(str(error)) from None
        except ValueError as error:
            problem = str(error).replace("frame_skip", "frameskip")
            raise ConfigError(f"env_args do not fit {config.env}: {problem}") from None
        self.version = source_hash()
        self.observation_space: spaces.Space = spaces.Box(0, 255, self._games.observation_shape, np.uint8)
        self.action_space = spaces.Discrete(self._games.num_actions)

    def init(self, seeds: Any) -> tuple[Any, Any]:
        """See `FunctionalEnv`. The number of seeds is `num_envs`."""
        state = self._games.init(seeds.astype("uint32"))
        return state, self._games.observe(state)

    def step(self, state: Any, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """See `FunctionalEnv`."""
        return self._games.step(state, actions)
