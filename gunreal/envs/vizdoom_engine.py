"""A ViZDoom engine that can switch between maps. It leaves no files or processes behind, however its owner ends."""

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

from gunreal.config.packages import package
from gunreal.envs import vizdoom_launch, vizdoom_map

_RESOLUTIONS = ((160, 120), (320, 240), (640, 480))
MAX_SIZE = _RESOLUTIONS[-1][1]
FIELD_OF_VIEW = 90  # degrees from left to right, in the cropped picture
_HIDDEN = ("hud", "weapon", "crosshair", "messages", "screen_flashes", "decals", "particles")


def pixel_step(depth: bool) -> int:
    """Number of engine pixels per pixel along each side. Depth needs a finer picture to resolve distant walls."""
    return 2 if depth else 1


def load() -> ModuleType:
    """Imports vizdoom. Raises ConfigError if it is not installed."""
    return package("vizdoom", 'ViZDoom is not installed; run pip install "gunreal[vizdoom]"')


class Engine:
    """One process of ViZDoom.

    The engine draws at the smallest of its resolutions that holds `size`. The middle of this picture is cropped, so
    nothing has to be resized. The field of view is widened so that the crop spans `FIELD_OF_VIEW`. Doom stretches its
    picture vertically by 1.2, which gives 80 degrees from top to bottom.

    Args:
      text: text of any map (`vizdoom_map.Map.text`) to start with.
      buttons: names in `vizdoom.Button`. An action has one number for each.
      counters: names in `vizdoom.GameVariable`, for `counts`.
      size: height and width of the picture, in pixels, at most `MAX_SIZE // pixel_step(depth)`.
      gray: whether to draw in gray instead of RGB.
      depth: whether to provide the distance of each pixel.

    Raises:
      RuntimeError: the engine does not start or has stopped. All methods may raise this error.
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
        # Color planes, as frames are stored. Separating interleaved colors would cost as much as everything else.
        game.set_screen_format(vizdoom.ScreenFormat.GRAY8 if gray else vizdoom.ScreenFormat.CRCGCB)
        game.set_depth_buffer_enabled(depth)
        game.set_item_reward(1)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in buttons])
        for shown in _HIDDEN:
            getattr(game, f"set_render_{shown}")(False)
        game.add_game_args("+movebob 0")
        view = 2 * math.degrees(math.atan(math.tan(math.radians(FIELD_OF_VIEW / 2)) * width / part))
        self._widen, self._widening = f"fov {view:.2f}", math.ceil(abs(view - 90) / 7)  # at most 7 degrees per tic
        self._nothing = [0] * len(buttons)
        self._start(Path(vizdoom.__path__[0]) / "vizdoom", text)

    def _start(self, engine: Path, text: bytes) -> None:
        """Starts the process. Its files are unlinked once they are open, so that none can be left behind."""
        game = self.game
        folder = Path(tempfile.mkdtemp(prefix="gunreal-vizdoom-"))
        try:
            content, self._offset = vizdoom_map.wad(text)
            maps = folder / "maps.wad"
            maps.write_bytes(content)
            self._maps = maps.open("r+b", buffering=0)
            words = [sys.executable, "-IS", vizdoom_launch.__file__, str(os.getpid()), str(engine)]
            launcher = folder / "launch"
            # The engine creates a folder in its working directory.
            launcher.write_text(f'#!/bin/sh\ncd {shlex.quote(str(folder))} && exec {shlex.join(words)} "$@"\n')
            launcher.chmod(0o700)
            game.set_vizdoom_path(str(launcher))
            game.set_doom_scenario_path(str(maps))
            game.set_doom_config_path("/dev/null")
            try:
                game.init()
            except Exception as e:  # ViZDoom's exceptions have no common base class
                self._maps.close()
                raise RuntimeError(f"ViZDoom does not start: {e}") from e
            for memory in Path("/dev/shm").glob(f"ViZDoom*{game.get_instance_id()}"):
                memory.unlink(missing_ok=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_episode(self, text: bytes, start: tuple[float, float, float]) -> None:
        """Starts an episode on another map.

        Args:
          text: text of the map (`vizdoom_map.Map.text`).
          start: pose of the player in this map, as in `pose`.
        """
        os.pwrite(self._maps.fileno(), text, self._offset)
        try:
            self.game.new_episode()
            self.game.send_game_command(self._widen)  # each episode starts with the engine's default of 90 degrees
            self.game.make_action(self._nothing, self._widening)
            if any(abs(got - wanted) > 0.01 for got, wanted in zip(self.pose, start, strict=True)):
                raise RuntimeError(f"the player is at {self.pose} instead of {start}: the new map was not read")
        except Exception as e:
            raise _stopped(e) from e

    def act(self, action: Sequence[float], tics: int) -> float:
        """Holds the buttons for `tics` 35ths of a second. Returns the number of items the player collected."""
        try:
            return self.game.make_action(action, tics)
        except Exception as e:
            raise _stopped(e) from e

    def picture(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The player's view, and the distance of each pixel if `depth` is set. The caller may keep the arrays.

        Returns:
          The picture, uint8 `[size, size]` in gray or `[size, size, 3]` in RGB.
          The distances, uint8 `[size, size]` with 0 near, or None.
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
        """The values of `counters`, in their order."""
        return [self.game.get_game_variable(counter) for counter in self._counters]

    @property
    def pose(self) -> tuple[float, float, float]:
        """The player's x and y in map units, and the angle in degrees (0 to the right, 90 up)."""
        names = ("POSITION_X", "POSITION_Y", "ANGLE")
        x, y, angle = (self.game.get_game_variable(getattr(self._variables, name)) for name in names)
        return x, y, angle

    def close(self) -> None:
        """Ends the process."""
        self._maps.close()
        self.game.close()


def _stopped(error: Exception) -> RuntimeError:
    return RuntimeError(f"ViZDoom has stopped: {error}")
