"""A replacement for `ale_py.ALEInterface`, with the methods that `gunreal.envs.atari` uses."""

from __future__ import annotations

import numpy as np

from gunreal_emulator.console import WIDTH, Console
from gunreal_emulator.native import Native, check_whole
from gunreal_emulator.settings import gray_palette, rgb_palette


class OwnALE(Native):
    """A loaded game, which must be reset before its first frame. One thread at a time may use it.

    Args:
      game: name of the game in ale-py.
      mode: number of the game's mode in ale-py. None plays the first mode.
      difficulty: difficulty switches. Bit 0 sets the left switch to A, and bit 1 the right one.
      max_frames: number of frames after which an episode is truncated. 0 disables truncation.

    Raises:
      UnknownGame: the game or its mode does not exist or is not supported. The message is one line that names the fix.
      EmulatorUnavailable: the emulator can't be compiled. The message is one line that names the fix.
      ValueError: another argument, or one of a method, is invalid.
    """

    def __init__(self, game: str, mode: int | None = None, difficulty: int = 0, max_frames: int = 0):
        check_whole("max_frames", max_frames, 0, 2**31 - 1)
        self._console, self._max_frames = Console(game, mode, difficulty), max_frames
        self._gray, self._rgb = gray_palette(self._console.game.pal), rgb_palette(self._console.game.pal)
        self._planes = {1: self._gray[None], 3: np.ascontiguousarray(self._rgb.T)}
        self.reset_game, self.lives, self.getRAM = self._console.reset_game, self._console.lives, self._console.getRAM

    def act(self, action: int) -> int:
        """Emulates one frame and returns its reward. After the end of the episode, the reward is 0."""
        return 0 if self.game_over() else self._console.act(action)

    def play(self, actions: list[int], screen: np.ndarray) -> int:
        """Emulates a frame of each action until the episode ends, and returns the reward.

        Writes the maximum of the last two screens, or the last screen if the episode has ended, to `screen`: uint8
        `[height, 160]` in gray or `[height, 160, 3]` in RGB, contiguous. This takes less time than frame by frame.
        """
        rgb, shape = screen.ndim == 3, (self._console.game.height, WIDTH)
        if screen.dtype != np.uint8 or screen.shape not in (shape, (*shape, 3)) or not screen.flags.c_contiguous:
            given = f"the screen is {screen.dtype} of shape {screen.shape}"
            raise ValueError(f"{given}; give contiguous uint8 of shape {shape} or {(*shape, 3)}")
        if not screen.flags.writeable:
            raise ValueError("the screen is read-only; give an array that may be written to")
        out = np.empty((3, *screen.shape[:2]), np.uint8) if rgb else screen[None]
        reward = self._console.play(actions, self._max_frames, self._planes[len(out)], out)
        if rgb:
            screen[:] = out.transpose(1, 2, 0)
        return reward

    def game_over(self, *, with_truncation: bool = True) -> bool:
        """Whether the game is over or, with `with_truncation`, the episode is truncated."""
        return self._console.game_over() or (with_truncation and self.game_truncated())

    def game_truncated(self) -> bool:
        """Whether the episode has reached its maximum length."""
        return 0 < self._max_frames <= self._console.frames()

    def getEpisodeFrameNumber(self) -> int:  # noqa: N802
        """Returns the number of frames since the start of the episode."""
        return self._console.frames()

    def getScreenGrayscale(self, out: np.ndarray | None = None) -> np.ndarray:  # noqa: N802
        """Returns the screen in gray, uint8 `[height, 160]`."""
        return np.take(self._gray, self._console.getScreen(), out=out)

    def getScreenRGB(self, out: np.ndarray | None = None) -> np.ndarray:  # noqa: N802
        """Returns the screen in RGB, uint8 `[height, 160, 3]`."""
        return np.take(self._rgb, self._console.getScreen(), axis=0, out=out)

    def cloneState(self, *, include_rng: bool = False) -> bytes:  # noqa: N802
        """Returns a snapshot of the state without the screen. The emulator has no random numbers."""
        return self._console.save()

    def restoreState(self, state: bytes) -> None:  # noqa: N802
        """Restores a snapshot of `cloneState`."""
        self._console.restore(state)

    def getMinimalActionSet(self) -> list[int]:  # noqa: N802
        """Returns the actions that have an effect in the game."""
        return list(self._console.game.actions)

    def getLegalActionSet(self) -> list[int]:  # noqa: N802
        """Returns all actions, 18 in most games."""
        return list(self._console.game.legal_actions)
