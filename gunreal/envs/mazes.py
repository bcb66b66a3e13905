"""Generation of mazes on a grid of cells, and shortest paths through them."""

from __future__ import annotations

import numpy as np

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left


def carve(rows: int, columns: int, openings: float, rng: np.random.Generator) -> np.ndarray:
    """Generates a maze by depth-first search, then removes a share of its inner walls.

    Args:
      rows: number of rows of cells, odd, including the outer walls.
      columns: number of columns of cells, odd, including the outer walls.
      openings: share of the inner walls to remove, for fewer dead ends.

    Returns:
      bool `[rows, columns]`, True for free cells.
    """
    free = np.zeros((rows, columns), bool)
    free[1, 1] = True
    path = [np.array([1, 1])]
    while path:
        here = path[-1]
        ahead = [move for move in MOVES if _inside(here + 2 * move, free) and not free[tuple(here + 2 * move)]]
        if not ahead:
            path.pop()
            continue
        move = ahead[rng.integers(len(ahead))]
        free[tuple(here + move)] = free[tuple(here + 2 * move)] = True
        path.append(here + 2 * move)
    row, column = np.indices(free.shape)
    between = (row + column) % 2 == 1  # a wall between two rooms
    between[[0, -1], :] = between[:, [0, -1]] = False
    walls = np.argwhere(between & ~free)
    free[tuple(rng.permutation(walls)[: round(openings * len(walls))].T)] = True
    return free


def _inside(cell: np.ndarray, free: np.ndarray) -> bool:
    return bool((cell > 0).all() and (cell < np.array(free.shape) - 1).all())


def distances(free: np.ndarray, goal: tuple[int, int]) -> np.ndarray:
    """Distances to `goal` by breadth-first search: int64 `[rows, columns]`, in steps, -1 for walls."""
    distance = np.where(free, np.iinfo(np.int64).max, -1)
    distance[goal] = 0
    front = [np.array(goal)]
    for here in front:  # the list grows during iteration
        for move in MOVES:
            there = tuple(here + move)
            if distance[there] > distance[tuple(here)] + 1:
                distance[there] = distance[tuple(here)] + 1
                front.append(here + move)
    return distance
