"""A ViZDoom engine that shows one map after another, and of which nothing is left however its owner ends."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.envs import vizdoom_launch, vizdoom_map

_RESOLUTIONS = ((160, 120), (320, 240), (640, 480))
MAX_SIZE = _RESOLUTIONS[-1][1]
FIELD_OF_VIEW = 90  # degrees from left to right, of what is cut out
_HIDDEN = ("hud", "weapon", "crosshair", "messages", "screen_flashes", "decals", "particles")


def pixel_step(depth: bool) -> int:
    """How many of the engine's pixels go to a pixel. The finer its picture, the farther it can tell a wall's depth."""
    return 2 if depth else 1


def load() -> ModuleType:
    """The module vizdoom. Raises ConfigError where there is none."""
    try:
        import vizdoom
    except ModuleNotFoundError:
        raise ConfigError("ViZDoom is not installed: pip install gunreal[vizdoom]") from None
    return vizdoom


class Engine:
    """One process of ViZDoom, for its owner's whole life.

    It draws the smallest picture of its own that holds `size`, with the field of view widened such that the middle that
    is cut out spans `FIELD_OF_VIEW`: nothing has to be resized. Doom's picture is 1.2 times as high as it
    would be in perspective, so that is 80 degrees from top to bottom.

    Attributes:
      game: the `vizdoom.DoomGame`.

    Args:
      text: of `vizdoom_map.Map.text`: any map, to start with.
      buttons: names of `vizdoom.Button`: an action has a number for each.
      counters: names of `vizdoom.GameVariable`: what `counts` counts.
      size: height and width of the picture, in pixels, at most `MAX_SIZE // pixel_step(depth)`.
      gray: one channel, else RGB.
      depth: each pixel's distance too.

    Raises:
      RuntimeError: here and in all methods: the engine does not start, or has stopped.
    """

    def __init__(
        self, text: bytes, buttons: Sequence[str], counters: Sequence[str], size: int, gray: bool, depth: bool
    ):
        vizdoom = load()
        step = pixel_step(depth)
        part = size * step
        width, height = next(shape for shape in _RESOLUTIONS if shape[1] >= part)
        top, left = (height - part) // 2, (width - part) // 2
        self._middle = ..., slice(top, top + part, step), slice(left, left + part, step)
        self._variables, self._depth = vizdoom.GameVariable, depth
        self._counters = [getattr(vizdoom.GameVariable, name) for name in counters]
        self.game = game = vizdoom.DoomGame()
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_doom_skill(3)
        game.set_doom_map("MAP01")
        game.set_seed(1)
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{width}X{height}"))
        # In planes, as they are stored: the copy that takes colours apart would cost as much as all else does.
        game.set_screen_format(vizdoom.ScreenFormat.GRAY8 if gray else vizdoom.ScreenFormat.CRCGCB)
        game.set_depth_buffer_enabled(depth)
        game.set_item_reward(1)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in buttons])
        for shown in _HIDDEN:
            getattr(game, f"set_render_{shown}")(False)
        game.add_game_args("+movebob 0")
        view = 2 * math.degrees(math.atan(math.tan(math.radians(FIELD_OF_VIEW / 2)) * width / part))
        self._widen, self._widening = f"fov {view:.2f}", math.ceil(abs(view - 90) / 7)  # at most 7 degrees a tic
        self._nothing = [0] * len(buttons)
        self._start(Path(vizdoom.__path__[0]) / "vizdoom", text)

    def _start(self, engine: Path, text: bytes) -> None:
        """Starts the process. Its files have names only until it has opened them: then they can't be left behind."""
        game = self.game
        folder = Path(tempfile.mkdtemp(prefix="gunreal-vizdoom-"))
        try:
            content, self._offset = vizdoom_map.wad(text)
            maps = folder / "maps.wad"
            maps.write_bytes(content)
            self._maps = maps.open("r+b", buffering=0)
            words = [sys.executable, "-IS", vizdoom_launch.__file__, str(os.getpid()), str(engine)]
            launcher = folder / "launch"
            # The engine makes a folder in its working directory.
            launcher.write_text(f'#!/bin/sh\ncd {shlex.quote(str(folder))} && exec {shlex.join(words)} "$@"\n')
            launcher.chmod(0o700)
            game.set_vizdoom_path(str(launcher))
            game.set_doom_scenario_path(str(maps))
            game.set_doom_config_path("/dev/null")
            try:
                game.init()
            except Exception as e:  # ViZDoom's exceptions have nothing in common
                raise RuntimeError(f"ViZDoom does not start: {e}") from e
            for memory in Path("/dev/shm").glob(f"ViZDoom*{game.get_instance_id()}"):
                memory.unlink(missing_ok=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_episode(self, text: bytes, start: tuple[float, float, float]) -> None:
        """Begins an episode on another map.

        Args:
          text: of `vizdoom_map.Map.text`.
          start: the pose that the player has there.
        """
        os.pwrite(self._maps.fileno(), text, self._offset)
        try:
            self.game.new_episode()
            self.game.send_game_command(self._widen)  # each episode begins with the engine's own 90 degrees
            self.game.make_action(self._nothing, self._widening)
            if any(abs(got - wanted) > 0.01 for got, wanted in zip(self.pose, start, strict=True)):
                raise RuntimeError(f"the player is at {self.pose} instead of {start}: the new map was not read")
        except Exception as e:
            raise _stopped(e) from e

    def act(self, action: Sequence[float], tics: int) -> float:
        """Holds the buttons for so many 35ths of a second. Returns how many items the player found meanwhile."""
        try:
            return self.game.make_action(action, tics)
        except Exception as e:
            raise _stopped(e) from e

    def picture(self) -> tuple[np.ndarray, np.ndarray | None]:
        """What the player sees, and each pixel's distance if that was wanted; the arrays are the caller's.

        Returns:
          uint8 `[size, size]`, or `[size, size, 3]` in RGB; uint8 `[size, size]`, 0 is near.
        """
        try:
            state = self.game.get_state()
            image = state.screen_buffer[self._middle]
            if image.ndim == 3:
                image = image.transpose(1, 2, 0)
            return image, state.depth_buffer[self._middle] if self._depth else None
        except Exception as e:
            raise _stopped(e) from e

    def counts(self) -> list[float]:
        """What the player has, in the order of `counters`."""
        return [self.game.get_game_variable(counter) for counter in self._counters]

    @property
    def pose(self) -> tuple[float, float, float]:
        """The player's x and y, in map units, and angle, in degrees: 0 to the right, 90 up."""
        names = ("POSITION_X", "POSITION_Y", "ANGLE")
        x, y, angle = (self.game.get_game_variable(getattr(self._variables, name)) for name in names)
        return x, y, angle

    def close(self) -> None:
        """Ends the process."""
        self._maps.close()
        self.game.close()


def _stopped(error: Exception) -> RuntimeError:
    return RuntimeError(f"ViZDoom has stopped: {error}")
