"""A pixel maze with one rare reward, which is solved in minutes on two cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.game import PIXELS, Game
from gunreal.envs.mazes import MOVES, carve, distances
from gunreal.envs.options import check, check_share

WALL, GOAL, AGENT = 90, 170, 255  # gray levels; the floor is 0


class RareGoalMaze(Game):
    """A maze seen from above. The only reward is +1 at the goal, where the episode ends.

    `layout` determines the maze. An episode starts on a random cell at least `min_distance` steps from the goal.
    Walking into a wall wastes the step. The time limit truncates the episode. The best return is 1. With the defaults,
    a random policy reaches the goal in about one of twenty episodes.

    Observation: uint8 `[84, 84, 1]`. Actions: up, right, down, left.

    Attributes:
      distance: int `[size, size]`, shortest path from each cell to the goal, in steps; -1 for walls.
      cells: rows and columns of the cells without walls, int `[cells, 2]`.
      goal: row and column of the goal.

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
    action_space = gymnasium.spaces.Discrete(4)
    actions = ("up", "right", "down", "left")

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
        self.max_steps = max_steps
        free = carve(size, size, openings, np.random.default_rng(layout))
        self.goal = (1, size - 2)
        self.distance = distances(free, self.goal)
        farthest = int(self.distance.max())
        if min_distance is None:
            min_distance = farthest // 2
        check("min_distance", min_distance, range(farthest + 1))
        self.cells = np.argwhere(free)
        here = np.arange(len(self.cells))
        number = np.full(free.shape, -1)
        number[free] = here
        beside = number[tuple((self.cells[:, None] + MOVES).T)].T
        self._goal = int(number[self.goal])
        tables = {
            "starts": here[self.distance[free] >= max(min_distance, 1)].tolist(),
            "ahead": np.where(beside < 0, here[:, None], beside).tolist(),  # [cells, actions]
            "pictures": self._pictures(free),
        }
        super().__init__(tables, render_mode)

    def _pictures(self, free: np.ndarray) -> np.ndarray:
        """The observation with the agent on each of the cells, uint8 `[cells, 84, 84, 1]`."""
        grids = np.repeat(np.where(free, 0, WALL).astype(np.uint8)[None], len(self.cells), axis=0)
        grids[:, *self.goal] = GOAL
        grids[np.arange(len(grids)), *self.cells.T] = AGENT
        cell = PIXELS // len(free)
        rest = PIXELS - cell * len(free)
        whole = grids.repeat(cell, axis=1).repeat(cell, axis=2)
        return np.pad(whole, ((0, 0), (0, rest), (0, rest)))[..., None]

    @property
    def place(self) -> tuple[int, int]:
        """Row and column of the agent."""
        row, column = self.cells[self.state[1]].tolist()
        return row, column

    def start(self, place: Any) -> tuple[Any, ...]:
        """Puts the agent on the cell with the number `place`."""
        return 0, place

    def advance(self, tables: Mapping[str, Any], state: Any, action: Any) -> tuple[tuple[Any, ...], Any, Any, Any]:
        """Moves the agent by one cell unless there is a wall."""
        time, cell = state[0] + 1, tables["ahead"][state[1]][action]
        found = cell == self._goal
        return (time, cell), 1.0 * found, found, (time >= self.max_steps) & (cell != self._goal)

    def draw(self, tables: Mapping[str, Any], state: Any) -> Any:
        """The maze, the goal and the agent."""
        return tables["pictures"][state[1]]
