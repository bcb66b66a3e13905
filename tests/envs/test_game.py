from __future__ import annotations

import numpy as np
import pytest

from gunreal.envs.catch import Catch
from gunreal.envs.maze import RareGoalMaze

jax = pytest.importorskip("jax")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Catch, {}),
        (Catch, {"rows": 5, "columns": 7, "delay": 2}),
        (RareGoalMaze, {"max_steps": 12}),
        (RareGoalMaze, {"size": 5, "min_distance": 1, "max_steps": 9}),
    ],
)
def test_device_runs_play_the_episodes_of_gymnasium(kind, options):
    env, count = kind(**options).functional(), 12
    games = [kind(**options) for _ in range(count)]
    state, observation = env.init(np.arange(count, dtype=np.int32))
    rng, step, nothing = np.random.default_rng(1), jax.jit(env.step), (0.0, False, False)
    results, over, starts, kinds = [nothing] * count, np.ones(count, bool), set(), set()
    actions = np.zeros(count, np.int32)
    for t in range(60):
        for i, game in enumerate(games):
            if over[i]:
                game.state = tuple(int(number[i]) for number in state["env"])
                starts.add(game.state)
                seen, expected = game.draw(game.tables, game.state), nothing
            else:
                seen, *rest, _ = game.step(actions[i])
                expected = tuple(rest)
            np.testing.assert_array_equal(observation[i], seen, err_msg=f"step {t} of game {i}")
            assert results[i] == expected
        kinds |= set(results)
        over = np.array([terminated or truncated for _, terminated, truncated in results])
        actions = rng.integers(env.action_space.n, size=count).astype(np.int32)
        state, observation, *now = step(state, actions)
        results = [(float(r), bool(e), bool(c)) for r, e, c in zip(*map(np.asarray, now), strict=True)]
    assert len(starts) > 2 and starts <= {games[0].start(place) for place in games[0].tables["starts"]}
    ends = {(1.0, True, False), (-1.0, True, False)} if kind is Catch else {(0.0, False, True)}
    assert kinds >= ends | {nothing}
    assert (1.0, True, False) in kinds or options == {"max_steps": 12}
