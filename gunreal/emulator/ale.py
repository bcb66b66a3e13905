"""A console with the part of `ale_py.ALEInterface` that `gunreal.envs.atari` uses, in its place."""

from __future__ import annotations

import numpy as np

from gunreal.emulator.console import Console
from gunreal.emulator.vector import gray_palette, rgb_palette


class OwnALE:
    """One game, loaded and not yet reset.

    Args:
      game: ale-py's name of it.
      difficulty: bits 0 and 1: the left and the right switch at A.
      max_frames: frames after which an episode is truncated; 0: never.

    Raises:
      UnknownGame, EmulatorUnavailable: one line that names the fix.
    """

    def __init__(self, game: str, difficulty: int = 0, max_frames: int = 0):
        self._console, self._max_frames = Console(game, difficulty), max_frames
        self._gray, self._rgb = gray_palette(self._console.game.pal), rgb_palette(self._console.game.pal)
        self.reset_game, self.lives, self.getRAM = self._console.reset_game, self._console.lives, self._console.getRAM

    def act(self, action: int) -> int:
        """One frame; returns its reward, 0 after the end."""
        return 0 if self.game_over() else self._console.act(int(action))

    def game_over(self, *, with_truncation: bool = True) -> bool:
        """Whether the episode has ended, by the game or, with truncation, by its length."""
        return self._console.game_over() or (with_truncation and self.game_truncated())

    def game_truncated(self) -> bool:
        """Whether the episode is as long as it may be."""
        return 0 < self._max_frames <= self._console.frames()

    def getScreenGrayscale(self, out: np.ndarray | None = None) -> np.ndarray:  # noqa: N802
        """Gray values, uint8 `[height, 160]`."""
        return np.take(self._gray, self._console.getScreen(), out=out)

    def getScreenRGB(self, out: np.ndarray | None = None) -> np.ndarray:  # noqa: N802
        """Colors, uint8 `[height, 160, 3]`."""
        return np.take(self._rgb, self._console.getScreen(), axis=0, out=out)

    def cloneState(self, *, include_rng: bool = False) -> bytes:  # noqa: N802
        """A snapshot without the picture; there are no random numbers in it."""
        return self._console.save()

    def restoreState(self, state: bytes) -> None:  # noqa: N802
        """Goes on from `cloneState`."""
        self._console.restore(state)

    def getMinimalActionSet(self) -> list[int]:  # noqa: N802
        """The actions that mean something in the game."""
        return list(self._console.game.actions)

    def getLegalActionSet(self) -> list[int]:  # noqa: N802
        """All 18 actions."""
        return list(range(18))
