"""Observations and actions of several parts: one vector, and a number for each combination."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gunreal.config.schema import Config
from gunreal.envs.flat import flat
from gunreal.envs.make import describe, make, make_raw


class Parts(gymnasium.Env):
    """Observes `space`, and rewards the action 10 * first + second."""

    def __init__(self, space=None, start=0):
        self.observation_space = space or spaces.Discrete(2)
        self.action_space = spaces.MultiDiscrete([3, 4], start=[start, start])

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), float(10 * action[0] + action[1]), False, False, {}


PLACE = spaces.Box(-1, 1, (2, 2), np.float64)
NESTED = spaces.Dict({"place": PLACE, "card": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])})


@pytest.mark.parametrize(
    ("space", "size"),
    [(NESTED, 9), (spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)]), 45)],
)
def test_observations_of_several_parts_are_one_vector(space, size):
    config = Config(env=f"{__name__}:Parts", env_args={"space": space})
    assert describe(config).frame == (size,) and describe(config).dtype == "float32"
    env = make(config, 1)
    frame = env.step(np.zeros(1, np.int32), np.ones(1, bool), np.array([7])).frame[0]
    env.close()
    space.seed(7)
    np.testing.assert_allclose(frame, spaces.flatten(space, space.sample()), rtol=1e-6)
    raw = make_raw(config)
    np.testing.assert_array_equal(raw.reset(seed=7)[0].astype(np.float32), frame)


def test_blackjack_is_played_as_it_is():
    assert describe(Config(env="Blackjack-v1")).frame == (45,)


@pytest.mark.parametrize("start", [0, -1])
def test_combinations_of_actions_are_numbered(start):
    config = Config(env=f"{__name__}:Parts", env_args={"start": start})
    env = make(config, 1)
    assert env.num_actions == 12
    env.step(np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1, int))
    rewards = [env.step(np.array([n], np.int32), np.zeros(1, bool), np.zeros(1, int)).reward[0] for n in range(12)]
    env.close()
    assert rewards == [10 * (i + start) + j + start for i, j in np.ndindex(3, 4)]


@pytest.mark.parametrize("shape", [(2, 2), (3, 3)])  # 512 combinations are more than a byte counts
def test_binary_actions_are_combinations_too(shape):
    env = Parts()
    env.action_space = spaces.MultiBinary(shape)
    wrapped = flat(Config(env="parts"), env)
    assert wrapped.action_space == spaces.Discrete(2 ** np.prod(shape))
    for number, bits in enumerate(np.ndindex(*[2] * np.prod(shape))):
        action = wrapped.action(number)
        assert env.action_space.contains(action) and tuple(action.ravel()) == bits


def test_a_thousand_combinations_are_not_too_many():
    env = Parts()
    env.action_space = spaces.MultiDiscrete([10, 100])
    assert flat(Config(env="parts"), env).action_space == spaces.Discrete(1000)


def test_pictures_are_not_made_vectors():
    """Flat, they would be thousands of numbers without their places."""
    for picture in (spaces.Box(0, 255, (30, 30), np.uint8), spaces.Box(0, 1, (30, 30), np.float32)):
        space = spaces.Tuple([picture, spaces.Discrete(2)])
        assert make_raw(Config(env=f"{__name__}:Parts", env_args={"space": space})).observation_space == space
