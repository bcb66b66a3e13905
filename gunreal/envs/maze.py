"""A pixel maze with one rare reward, which is solved in minutes on two cores."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.mazes import MOVES, carve, distances
from gunreal.envs.options import check, check_share

PIXELS = 84
WALL, GOAL, AGENT = 90, 170, 255  # gray levels; the floor is 0


class RareGoalMaze(gymnasium.Env):
    """A maze seen from above. The only reward is +1 at the goal, where the episode ends.

    `layout` determines the maze. An episode starts on a random cell at least `min_distance` steps from the goal.
    Walking into a wall wastes the step. The time limit truncates the episode. The best return is 1. With the defaults,
    a random policy reaches the goal in about one of twenty episodes.

    Observation: uint8 `[84, 84, 1]`. Actions: up, right, down, left.

    Attributes:
      distance: int `[size, size]`, shortest path from each cell to the goal, in steps; -1 for walls.
      starts: rows and columns of the cells on which episodes start.
      picture: the observation without the agent.
      cell: height and width of a cell, in pixels.

    Args:
      size: number of cells along each side, odd, including walls.
      max_steps: time limit in steps.
      min_distance: minimum distance of the start from the goal, in steps. None means half of the largest distance.
      layout: seed of the maze.
      openings: share of the inner walls to remove, for fewer dead ends.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: an argument is invalid. The message is one line that names the fix.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}
    observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(
        self,
        size: int = 9,
        max_steps: int = 120,
        min_distance: int | None = None,
        layout: int = 1,
        openings: float = 0.1,
        render_mode: str | None = None,
    ):
        check("size", size, range(5, PIXELS // 2, 2))
        check("max_steps", max_steps, range(1, 10**6))
        check_share("openings", openings)
        self.max_steps, self.render_mode = max_steps, render_mode
        free = carve(size, size, openings, np.random.default_rng(layout))
        self.goal = (1, size - 2)
        self.distance = distances(free, self.goal)
        farthest = int(self.distance.max())
        if min_distance is None:
            min_distance = farthest // 2
        check("min_distance", min_distance, range(farthest + 1))
        self.starts = np.argwhere(self.distance >= max(min_distance, 1)).tolist()
        self._free = free.tolist()  # indexing a list of lists is several times faster than indexing an array
        self.cell = PIXELS // size
        self.picture = np.zeros((PIXELS, PIXELS, 1), np.uint8)
        for row, column in np.argwhere(~free):
            self._paint(self.picture, row, column, WALL)
        self._paint(self.picture, *self.goal, GOAL)
        self.row, self.column, self.time = *self.starts[0], 0

    @property
    def shortest_path_length(self) -> int:
        """Length of the shortest path from the agent to the goal, in steps."""
        return int(self.distance[self.row, self.column])

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Puts the agent on a random start cell."""
        super().reset(seed=seed)
        self.row, self.column = self.starts[int(self.np_random.integers(len(self.starts)))]
        self.time = 0
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the agent by one cell unless there is a wall."""
        down, right = _STEPS[action]
        if self._free[self.row + down][self.column + right]:
            self.row, self.column = self.row + down, self.column + right
        self.time += 1
        found = (self.row, self.column) == self.goal
        return self._draw(), float(found), found, self.time >= self.max_steps and not found, {}

    def render(self) -> np.ndarray | None:
        """The observation in RGB, uint8 `[84, 84, 3]`, for "rgb_array"."""
        return self._draw().repeat(3, axis=2) if self.render_mode == "rgb_array" else None

    def _draw(self) -> np.ndarray:
        image = self.picture.copy()
        self._paint(image, self.row, self.column, AGENT)
        return image

    def _paint(self, image: np.ndarray, row: int, column: int, gray: int) -> None:
        cell = self.cell
        image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = gray


_STEPS = [tuple(move) for move in MOVES.tolist()]
