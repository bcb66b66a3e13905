from __future__ import annotations

import numpy as np
import pytest

from gunreal.envs.mazes import MOVES, carve, distances


def slow_distances(free, goal):
    """Relaxes every cell from its neighbors until nothing changes."""
    best = np.where(free, np.inf, -1.0)
    best[goal] = 0
    for _ in range(free.size):
        for row, column in np.argwhere(free):
            near = [best[row + down, column + right] for down, right in MOVES if free[row + down, column + right]]
            best[row, column] = min([best[row, column], *(distance + 1 for distance in near)])
    return best


@pytest.mark.parametrize("seed", range(5))
def test_without_openings_there_is_one_way_from_each_cell_to_each_other(seed):
    free = carve(7, 11, 0.0, np.random.default_rng(seed))
    assert free.shape == (7, 11)
    assert free[1::2, 1::2].all()  # the rooms
    assert not free[[0, -1]].any() and not free[:, [0, -1]].any()
    assert (distances(free, (1, 1))[free] >= 0).all()
    doors = (free[1:] & free[:-1]).sum() + (free[:, 1:] & free[:, :-1]).sum()
    assert doors == free.sum() - 1  # connected, with so few: a tree


def test_openings_are_a_share_of_the_inner_walls():
    closed, some, all_open = (carve(9, 9, openings, np.random.default_rng(2)) for openings in (0.0, 0.5, 1.0))
    inner = 2 * 4 * 3 - (closed.sum() - 16)  # walls between two rooms that are left
    assert some.sum() == closed.sum() + round(0.5 * inner)
    assert all_open.sum() == closed.sum() + inner
    assert (some >= closed).all()
    assert not all_open[2, 2]  # a pillar between four rooms stays


def test_the_generator_decides():
    one, same, other = (carve(9, 9, 0.3, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_those_of_the_slow_way(seed):
    free = carve(7, 9, 0.3, np.random.default_rng(seed))
    assert (distances(free, (3, 5)) == slow_distances(free, (3, 5))).all()
