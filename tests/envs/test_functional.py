"""Functional environments: episodes follow each other, and each has Gymnasium's interface, too."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scripted_functional
from gymnasium import spaces

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.functional import Batched, Played, adapted
from gunreal.envs.make import look, make_raw

jax = pytest.importorskip("jax")


class Countdown:
    """gymnax's interface: the state counts from a random number down to 0."""

    def reset_env(self, key, params):
        left = jax.random.randint(key, (), 1, params + 1)
        return left[None].astype("float32"), left

    def step_env(self, key, state, action, params):
        return (state - 1)[None].astype("float32"), state - 1, 1.0 * action, state == 1, {}

    def observation_space(self, params):
        return SimpleNamespace(shape=(1,), low=0, high=params)

    def action_space(self, params):
        return SimpleNamespace(n=2)


def make_countdown(most: int = 4):
    return Countdown(), most


def test_episodes_follow_each_other():
    env = adapted(make_countdown())
    assert isinstance(env, Batched)
    state, observation = env.init(np.arange(50, dtype=np.int32))
    left, over, starts = np.asarray(observation)[:, 0], np.zeros(50, bool), [[] for _ in range(50)]
    step = jax.jit(env.step)
    for _ in range(20):
        state, observation, reward, terminated, truncated = step(state, np.ones(50, np.int32))
        now = np.asarray(observation)[:, 0]
        assert (now[~over] == left[~over] - 1).all() and (now[over] >= 1).all()
        np.testing.assert_array_equal(reward, np.where(over, 0, 1))
        np.testing.assert_array_equal(terminated, ~over & (now == 0))
        assert not truncated.any()
        for i in np.nonzero(over)[0]:
            starts[i].append(int(now[i]))
        left, over = now, np.asarray(terminated)
    assert {1, 2, 3, 4} == set().union(*starts)
    assert sum(len(set(own)) > 1 for own in starts) > 40  # every episode draws its own


def test_time_limits_of_gymnax_truncate():
    class Timed(Countdown):
        """As since gymnax 1.0."""

        def is_truncated(self, state, params):
            return state <= 1

    env = adapted((Timed(), 4))
    state, observation = env.init(np.arange(50, dtype=np.int32))
    left = np.asarray(observation)[:, 0]
    _, _, _, terminated, truncated = env.step(state, np.ones(50, np.int32))
    np.testing.assert_array_equal(terminated, left == 1)
    np.testing.assert_array_equal(truncated, left == 2)


def test_flags_may_be_whole_numbers():
    def step(key, state, action):
        return state - 1, state - 1.0, action, (state == 1).astype("int32"), 0

    env = Batched(lambda key: (jax.numpy.int32(2), 2.0), step, spaces.Box(0, 2, ()), spaces.Discrete(2))
    state, _ = env.init(np.arange(3, dtype=np.int32))
    for ends in (False, True, False):
        before = jax.eval_shape(lambda state: state, state)
        state, _, _, terminated, truncated = env.step(state, np.ones(3, np.int32))
        assert (terminated == ends).all() and not truncated.any() and terminated.dtype == truncated.dtype == bool
        assert jax.eval_shape(lambda state: state, state) == before


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("action_space", "of gymnax takes SimpleNamespace actions; choose an environment with Discrete actions"),
        ("observation_space", "of gymnax observes SimpleNamespace; choose an environment that observes a Box or Disc"),
    ],
)
def test_spaces_of_gymnax_that_do_not_fit_are_refused(monkeypatch, method, message):
    monkeypatch.setattr(Countdown, method, lambda self, params: SimpleNamespace(spaces={}))
    with pytest.raises(ConfigError, match=f"Countdown {message}"):
        adapted(make_countdown())


def test_an_environment_depends_on_its_seed_alone():
    env = adapted(make_countdown(1000))
    (_, some), (_, others) = (env.init(np.array(seeds, np.int32)) for seeds in ([1, 2, 3], [3, 9, 1]))
    assert some[0] == others[2] and some[2] == others[0] and some[0] != some[1]


def test_played_is_a_gymnasium_environment():
    env = make_raw(Config(env="scripted_functional:make", env_args={"script": "--t"}))
    assert isinstance(env, Played)
    first, _ = env.reset(seed=3)
    assert env.observation_space.contains(first) and first[1] == 0
    steps = [env.step(2) for _ in range(3)]
    assert [step[1] for step in steps] == [0.5, 0.75, 1.0]
    assert [step[2:4] for step in steps] == [(False, False), (False, False), (False, True)]
    assert (env.reset(seed=3)[0] == first).all() and (env.reset()[0] != first).any()


def test_its_interface_is_that_of_a_run():
    spec, raw, _ = look(Config(env="scripted_functional:make"))
    assert spec.frame == (3,) and spec.num_actions == 3 and raw.space.shape == (3,)


def test_the_actions_of_a_space_with_a_start_are_counted_from_0():
    env = scripted_functional.make("~")
    env.action_space = spaces.Discrete(3, start=5)
    played = Played(env)
    played.reset(seed=0)
    assert played.step(6)[0][2] == 1
