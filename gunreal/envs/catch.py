"""Catch (Osband et al. 2020, bsuite): a paddle catches a falling ball. Any agent that learns at all solves it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.options import check

PIXELS = 84


class Catch(gymnasium.Env):
    """A game in which a paddle catches a falling ball.

    The ball starts in a random column and falls one row per step. The paddle moves on the bottom row.

    Observation: uint8 `[84, 84, 1]`. Actions: left, stay, right. Reward: +1 for a caught ball and -1 for a missed one.
    Both end the episode (`terminated`) after `delay + rows - 1` steps. The best return is 1. A random policy gets about
    -0.6.

    Args:
      rows: number of rows of the grid.
      columns: number of columns of the grid.
      delay: number of steps before the ball and the paddle start to move. If above 0, the ball is visible only in the
        first frame of the episode. Once that frame has left the stack, an agent without memory is at chance level.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: an argument is invalid. The message is one line that names the fix.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, rows: int = 10, columns: int = 5, delay: int = 0, render_mode: str | None = None):
        check("rows", rows, range(2, PIXELS + 1))
        check("columns", columns, range(1, PIXELS + 1))
        check("delay", delay, range(10**6))
        self.rows, self.columns, self.delay, self.render_mode = rows, columns, delay, render_mode
        self._height, self._width = PIXELS // rows, PIXELS // columns
        self.time = self.ball = self.paddle = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Drops a new ball and moves the paddle to the middle."""
        super().reset(seed=seed)
        self.time, self.ball, self.paddle = 0, int(self.np_random.integers(self.columns)), self.columns // 2
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the paddle by `action - 1` columns and the ball down by one row."""
        self.time += 1
        if self.time > self.delay:
            self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        landed = self.time == self.delay + self.rows - 1
        reward = (1.0 if self.ball == self.paddle else -1.0) if landed else 0.0
        return self._draw(), reward, landed, False, {}

    def render(self) -> np.ndarray | None:
        """The observation in RGB, uint8 `[84, 84, 3]`, for "rgb_array"."""
        return self._draw().repeat(3, axis=2) if self.render_mode == "rgb_array" else None

    def _draw(self) -> np.ndarray:
        image = np.zeros((PIXELS, PIXELS, 1), np.uint8)
        h, w = self._height, self._width
        seen = [(self.rows - 1, self.paddle)]
        if self.time == 0 or not self.delay:
            seen.append((self.time, self.ball))
        for row, column in seen:
            image[row * h : (row + 1) * h, column * w : (column + 1) * w] = 255
        return image
