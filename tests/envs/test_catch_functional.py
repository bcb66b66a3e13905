"""Catch as a functional environment plays by the rules of Catch."""

from __future__ import annotations

import numpy as np
import pytest

from gunreal.envs import catch_functional
from gunreal.envs.catch import Catch

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("options", [{}, {"rows": 5, "columns": 7, "delay": 2}])
def test_it_plays_as_the_other(options):
    env, count = catch_functional.make(**options), 12
    games = [Catch(**options) for _ in range(count)]
    state, observation = env.init(np.arange(count, dtype=np.int32))
    over, rng, step = np.ones(count, bool), np.random.default_rng(1), jax.jit(env.step)  # the games are to be reset
    reward, ended, balls, actions = np.zeros(count), np.zeros(count, bool), set(), np.zeros(count, np.int32)
    for t in range(26):
        for i, game in enumerate(games):
            if over[i]:
                game.reset(seed=0)
                game.ball = int(state["env"]["ball"][i])
                balls.add(game.ball)
                expected = game._draw(), 0.0, False
            else:
                drawn, gained, landed, _, _ = game.step(int(actions[i]))
                expected = drawn, gained, landed
            np.testing.assert_array_equal(observation[i], expected[0], err_msg=f"step {t} of game {i}")
            assert (reward[i], ended[i]) == expected[1:]
        over, actions = ended, rng.integers(3, size=count).astype(np.int32)
        state, observation, *results = step(state, actions)
        reward, ended, truncated = (np.asarray(x) for x in results)
        assert not truncated.any()
    assert len(balls) > 2
