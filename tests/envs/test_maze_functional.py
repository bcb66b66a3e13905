"""The rare-goal maze as a functional environment plays by the rules of the maze."""

from __future__ import annotations

import numpy as np
import pytest

from gunreal.envs import maze_functional
from gunreal.envs.maze import RareGoalMaze

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("options", [{"max_steps": 12}, {"size": 5, "min_distance": 1, "max_steps": 9}])
def test_it_plays_as_the_other(options):
    env, count = maze_functional.make(**options), 12
    mazes = [RareGoalMaze(**options) for _ in range(count)]
    state, observation = env.init(np.arange(count, dtype=np.int32))
    rng, step, nothing = np.random.default_rng(1), jax.jit(env.step), (0.0, False, False)
    results, over, starts, ends = [nothing] * count, np.ones(count, bool), set(), np.zeros(2, int)
    actions = np.zeros(count, np.int32)
    for t in range(60):
        for i, maze in enumerate(mazes):
            if over[i]:
                maze.reset(seed=0)
                maze.row, maze.column = (int(x) for x in state["env"]["place"][i])
                starts.add((maze.row, maze.column))
                assert [maze.row, maze.column] in maze.starts
                drawn, expected = maze._draw(), nothing
            else:
                drawn, *rest, _ = maze.step(int(actions[i]))
                expected = tuple(rest)
            np.testing.assert_array_equal(observation[i], drawn, err_msg=f"step {t} of maze {i}")
            assert results[i] == expected
        over = np.array([terminated or truncated for _, terminated, truncated in results])
        ends += np.array([result[1:] for result in results]).sum(0)
        actions = rng.integers(4, size=count).astype(np.int32)
        state, observation, *now = step(state, actions)
        results = [(float(r), bool(e), bool(c)) for r, e, c in zip(*map(np.asarray, now), strict=True)]
    assert len(starts) > 2 and ends[1] > 0
    assert ends[0] > 0 or options.get("size") != 5
