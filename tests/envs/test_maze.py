from __future__ import annotations

import numpy as np
import pytest

from gunreal.envs.maze import AGENT, GOAL, WALL, RareGoalMaze
from gunreal.envs.mazes import MOVES


def downhill(env):
    """The action that leads to a neighbor one step nearer to the goal."""
    near = [env.distance[tuple(env.place + move)] for move in MOVES]
    return near.index(env.distance[env.place] - 1)


@pytest.mark.parametrize("options", [{}, {"size": 5}, {"size": 11, "layout": 3}, {"openings": 0.0}, {"openings": 1.0}])
def test_walking_downhill_takes_the_shortest_path(options):
    env = RareGoalMaze(**options)
    for seed in range(10):
        env.reset(seed=seed)
        length = env.distance[env.place]
        assert env.distance.max() // 2 <= length <= env.distance.max()
        rewards = []
        terminated = False
        while not terminated:
            _, reward, terminated, truncated, _ = env.step(downhill(env))
            assert not truncated
            rewards.append(reward)
        assert rewards == [0.0] * (length - 1) + [1.0]


def test_time_limit_truncates():
    env = RareGoalMaze(max_steps=4)
    env.reset(seed=0)
    results = [env.step(0)[2:4] for _ in range(4)]
    assert results == [(False, False)] * 3 + [(False, True)]
    env = RareGoalMaze(size=5, min_distance=1)
    env.reset(seed=0)
    env.max_steps = env.distance[env.place]  # the goal on the last step: terminated, not truncated
    while env.distance[env.place] > 1:
        env.step(downhill(env))
    assert env.step(downhill(env))[1:4] == (1.0, True, False)


def test_starts_are_at_least_as_far_from_the_goal_as_asked():
    env = RareGoalMaze(min_distance=4)
    assert min(env.distance[tuple(env.cells[start])] for start in env.tables["starts"]) == 4


def test_walls_stop():
    env = RareGoalMaze()
    env.reset(seed=0)
    for action, move in enumerate(MOVES):
        here, ahead = env.place, tuple(env.place + move)
        env.step(action)
        assert env.place == (ahead if env.distance[ahead] >= 0 else here)


def test_picture():
    env = RareGoalMaze()
    image, _ = env.reset(seed=1)
    assert image.shape == (84, 84, 1) and image.dtype == np.uint8
    cells = image[4:81:9, 4:81:9, 0]  # centres of the 9 x 9 cells of 9 pixels
    np.testing.assert_array_equal(cells == WALL, env.distance < 0)
    assert np.argwhere(cells == AGENT).tolist() == [list(env.place)]
    assert np.argwhere(cells == GOAL).tolist() == [list(env.goal)]


def test_reward_is_rare_under_the_random_policy():
    env, rng = RareGoalMaze(), np.random.default_rng(0)
    hits = 0
    for seed in range(400):
        env.reset(seed=seed)
        terminated = truncated = False
        while not terminated and not truncated:
            _, _, terminated, truncated, _ = env.step(int(rng.integers(4)))
        hits += terminated
    assert 0.02 <= hits / 400 <= 0.08
