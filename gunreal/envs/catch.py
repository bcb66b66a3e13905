"""Catch (Osband et al. 2020, bsuite): a paddle catches a falling ball. Any agent that learns at all solves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.game import PIXELS, Game
from gunreal.envs.options import check


class Catch(Game):
    """A game in which a paddle catches a falling ball.

    The ball starts in a random column and falls one row per step. The paddle moves on the bottom row.

    Observation: uint8 `[84, 84, 1]`. Actions: left, stay, right. Reward: +1 for a caught ball and -1 for a missed one.
    Both end the episode (`terminated`) after `delay + rows - 1` steps. The best return is 1. A random policy gets about
    -0.6.

    The state has the number of steps so far, and the columns of ball and paddle.

    Args:
      rows: number of rows of the grid.
      columns: number of columns of the grid.
      delay: number of steps before the ball and the paddle start to move. If above 0, the ball is visible only in the
        first frame of the episode. Once that frame has left the stack, an agent without memory is at chance level.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: an argument is invalid. The message is one line that names the fix.
    """

    action_space = gymnasium.spaces.Discrete(3)
    actions = ("left", "stay", "right")

    def __init__(self, rows: int = 10, columns: int = 5, delay: int = 0, render_mode: str | None = None):
        check("rows", rows, range(2, PIXELS + 1))
        check("columns", columns, range(1, PIXELS + 1))
        check("delay", delay, range(10**6))
        self.rows, self.columns, self.delay = rows, columns, delay
        places, moves = np.arange(columns), np.array([[0, 0, 0], [-1, 0, 1]])  # during the delay, and after it
        down, across = _bands(rows)[:, :, None, None], _bands(columns)[:, None, :, None]
        tables = {
            "starts": places.tolist(),
            "moved": np.clip(places[:, None] + moves[:, None], 0, columns - 1).tolist(),  # [2, columns, actions]
            "paddles": down[rows - 1] & across,
            "down": down,
            "across": across,
        }
        super().__init__(tables, render_mode)

    def start(self, place: Any) -> tuple[Any, ...]:
        """Drops a new ball in column `place`. The paddle is in the middle."""
        return 0, place, self.columns // 2

    def advance(self, tables: Mapping[str, Any], state: Any, action: Any) -> tuple[tuple[Any, ...], Any, Any, Any]:
        """Moves the paddle by `action - 1` columns and the ball down by one row."""
        time, ball, paddle = state
        time = time + 1
        paddle = tables["moved"][(time > self.delay) * 1][paddle][action]
        landed = time == self.delay + self.rows - 1
        return (time, ball, paddle), 2.0 * (landed & (ball == paddle)) - landed, landed, False

    def draw(self, tables: Mapping[str, Any], state: Any) -> Any:
        """The paddle and, if it is seen, the ball."""
        time, ball, paddle = state
        landed = time > self.rows  # and the environment was not reset
        row = (time > 0) * self.rows if self.delay else time - landed * (time - self.rows)
        return tables["paddles"][paddle] | (tables["down"][row] & tables["across"][ball])


def _bands(count: int) -> np.ndarray:
    """The pixels of each row or column, 255 in it and 0 elsewhere, uint8 `[count + 1, 84]`. The last one is dark."""
    inside = np.arange(PIXELS) // (PIXELS // count) == np.arange(count + 1)[:, None]
    inside[count] = False
    return np.where(inside, 255, 0).astype(np.uint8)
