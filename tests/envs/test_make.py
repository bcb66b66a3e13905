"""The contract of `VectorEnv`, for every kind of environment, and `describe` and `restore`."""

from __future__ import annotations

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.utils.env_checker import check_env

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.apart import check_recorded
from gunreal.envs.make import describe, make, restore
from gunreal.experience.spec import RecordedField, Spec

ENVS = ["ALE/Breakout-v5", "gunreal/Catch-v0", "gunreal/RareGoalMaze-v0", "CartPole-v1"]
CONFIGS = [
    *(Config(env=env) for env in ENVS),
    Config(env="ALE/Breakout-v5", protocol="v5"),
    Config(env="ALE/Breakout-v5", observation="rgb", frame_size=64),
    Config(env="gunreal/Catch-v0", observation="rgb", frame_stack=1),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*You are calling 'step")  # CartPole, past its end
contract = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.env}-{c.protocol}-{c.observation}")


def random_actions(env, steps, seed=0):
    return np.random.default_rng(seed).integers(env.num_actions, size=steps, dtype=np.int32)


def step(env, actions, reset=False, seeds=0):
    n = env.num_envs
    return env.step(np.broadcast_to(actions, n), np.broadcast_to(reset, n), np.broadcast_to(seeds, n))


def episode(env, index, seed, actions):
    """Frames, rewards and ends of environment `index`, reset with `seed`; the others take the same actions."""
    steps = [step(env, 0, np.arange(env.num_envs) == index, seed)]
    for action in actions:
        steps.append(step(env, action))
        if steps[-1].terminated[index] or steps[-1].truncated[index]:
            break
    return tuple(np.array([getattr(s, name)[index] for s in steps]) for name in ("frame", "reward", "terminated"))


@contract
def test_step_shapes(config):
    env = make(config, 3)
    spec = describe(config)
    for result in (step(env, 0, True, [1, 2, 3]), step(env, 1)):
        assert result.frame.shape == (3, *spec.frame) and result.frame.dtype == spec.dtype
        assert result.reward.shape == (3,) and result.reward.dtype == np.float32
        assert result.terminated.shape == result.truncated.shape == (3,)
        assert result.terminated.dtype == result.truncated.dtype == bool
        assert result.extra == {}
    assert (spec.frame, spec.dtype, spec.num_actions) == (env.frame, env.dtype, env.num_actions)
    env.close()


@contract
def test_results_belong_to_the_caller(config):
    env = make(config, 2)
    first = step(env, 0, True, [1, 2])
    copy = first.frame.copy()
    for action in random_actions(env, 5):
        step(env, action)
    np.testing.assert_array_equal(first.frame, copy)
    env.close()


@contract
def test_episode_is_a_function_of_seed_and_actions(config):
    env, fresh = make(config, 3), make(config, 1)
    actions = random_actions(env, 60)
    step(env, 0, True, [1, 2, 3])
    expected = episode(env, 1, 77, actions)
    for action in random_actions(env, 37, seed=9):
        done = step(env, action)
        ended = done.terminated | done.truncated
        if ended.any():
            step(env, action, ended, [4, 5, 6])
    for other, index in ((env, 1), (env, 2), (fresh, 0)):
        for got, want in zip(episode(other, index, 77, actions), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    env.close(), fresh.close()


@contract
def test_seeds_differ(config):
    env = make(config, 5)
    result = step(env, 0, True, np.arange(5))
    if config.env.startswith("ALE/"):  # starts look alike, but differ in when they were served, or in sticky actions
        for action in random_actions(env, 60):
            result = step(env, action)
    assert len(np.unique(result.frame.reshape(5, -1), axis=0)) > 1
    env.close()


@contract
def test_reset_leaves_the_others_alone(config):
    env, twin = make(config, 2), make(config, 2)
    for e in (env, twin):
        step(e, 0, True, [5, 6])
    for t, action in enumerate(random_actions(env, 8)):
        result, undisturbed = step(env, action, [False, t == 3], 9), step(twin, action)
        np.testing.assert_array_equal(result.frame[0], undisturbed.frame[0])
        if t == 3:
            assert result.reward[1] == 0 and not result.terminated[1] and not result.truncated[1]
    env.close(), twin.close()


@contract
def test_restore_continues_as_the_original(config):
    seeds, lengths = [11, 12, 13], [7, 0, 3]
    restored = make(config, 3)
    actions = [random_actions(restored, length, seed=length) for length in lengths]
    last = restore(restored, seeds, actions)
    after = [step(restored, action) for action in (1, 0, 1)]
    for i, (seed, taken) in enumerate(zip(seeds, actions, strict=True)):
        original = make(config, 1)
        frames, *_ = episode(original, 0, seed, taken)
        np.testing.assert_array_equal(last.frame[i], frames[-1])
        for action, result in zip((1, 0, 1), after, strict=True):
            np.testing.assert_array_equal(result.frame[i], step(original, action).frame[0])
        original.close()
    restored.close()


class StrictCartPole(CartPoleEnv):
    def step(self, action):
        assert self.steps_beyond_terminated is None, "a step after the end of an episode"
        return super().step(action)


def test_restore_idles_through_short_episodes():
    """CartPole falls over while it waits for the longest episode; it is put up again until its own start."""
    config = Config(env=f"{__name__}:StrictCartPole")
    balance = np.tile([1, 0], 15).astype(np.int32)
    env, single = make(config, 2), make(config, 1)
    last = restore(env, [3, 4], [balance, balance[:5]])
    frames, *_ = episode(single, 0, 4, balance[:5])
    np.testing.assert_array_equal(last.frame[1], frames[-1])
    for action in (0, 1, 1):
        np.testing.assert_array_equal(step(env, action).frame[1], step(single, action).frame[0])
    env.close(), single.close()


def test_describe_takes_constants_from_the_config():
    config = Config(env="gunreal/Catch-v0", frame_size=42, frame_stack=2, t_max=5, discount=0.9, reward_clip=0.0)
    assert describe(config) == Spec((1, 42, 42), 2, "uint8", 3, 5, 0.9, 0.0)
    assert describe(dataclasses.replace(config, observation="rgb")).observation == (6, 42, 42)
    assert describe(Config(env="CartPole-v1")).stack == 1  # vectors are not stacked


def test_rewards_are_clipped_in_atari_games_only_unless_told():
    for env, clip in {"ALE/Pong-v5": 1.0, "gunreal/Catch-v0": 0.0}.items():
        assert describe(Config(env=env)).reward_clip == clip
        assert describe(Config(env=env, reward_clip=3.0)).reward_clip == 3.0


def plus_300(lives):
    return lives.astype(int) + 300


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (RecordedField("ram", (2,), "uint8"), r"records 'ram' as uint8 of shape \(2,\), but .* has .* shape \(128,\)"),
        (RecordedField("lives", (), "uint8", lambda lives: lives / 2), "but ALE/Pong-v5 has float64 of shape"),
        (RecordedField("lives", (), "uint8", plus_300), r"as uint8 of shape \(\), but .* int64 .* from 300 to 300;"),
        (RecordedField("lives", (), "int8", plus_300), "records 'lives' as int8 of shape"),
        (RecordedField("lives", (2,), "float32", lambda lives: lives.astype(str)), r"has <U\d+ of shape \(\); convert"),
    ],
)
def test_recorded_keys_are_checked_before_anything_starts(recorded, message):
    config = Config(env="ALE/Pong-v5")
    fitting = [RecordedField("lives", (), "int16", plus_300), RecordedField("ram", (2,), "uint8", lambda x: x[:, :2])]
    check_recorded(config, fitting)
    with pytest.raises(ConfigError, match=message):
        check_recorded(config, [*fitting, recorded])


class Wrong(gymnasium.Env):
    """Makes one of the typical mistakes of an environment."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, mistake=""):
        self.mistake, self.time = mistake, 0
        if mistake == "no file":
            raise FileNotFoundError("no map")
        image, vector = gymnasium.spaces.Box(0, 255, (20, 30, 3), np.uint8), gymnasium.spaces.Box(-1, 1, (3,))
        self.observation_space = vector if "vector" in mistake else image

    def observe(self):
        image = np.zeros((20, 30, 3), np.uint8)
        match self.mistake:
            case "floats":
                return image / 255
            case "unpacks too many":
                _, _ = 1, *image[:2]
            case "size":
                return image[:10]
            case "vector with nan":
                return np.array([0, np.nan, 0], np.float32)
            case "vector with infinity later":
                return np.array([0, 0, np.inf if self.time else 0], np.float32)
        return image

    def reset(self, *, seed=None, options=None):
        return self.observe() if self.mistake == "no info" else (self.observe(), {})

    def step(self, action):
        self.time += 1
        if self.mistake == "exit":
            raise SystemExit(0)
        reward = {"None": None, "array": np.ones(1)}.get(self.mistake, float("nan"))
        result = self.observe(), 0.0 if "vector" in self.mistake else reward, False, False, {}
        return result[:4] if "four values" in self.mistake else result


gymnasium.register("WrongWithLimit-v0", Wrong, max_episode_steps=9, kwargs={"mistake": "four values"})


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("nan", "returned the reward nan; rewards must be finite numbers"),
        ("None", "returned the reward None; rewards must be finite numbers"),
        ("array", r"returned the reward array\(\[1.\]\); rewards must be finite numbers"),
        ("exit", "fails in its first step: SystemExit: 0"),
        ("no file", r":Wrong cannot be opened: FileNotFoundError: no map \(.*test_make.py:\d+\)$"),
        ("unpacks too many", r"fails in its first step: ValueError: too many values to unpack .*test_make.py:\d+\)$"),
        ("floats", r"returned float64 of shape \(20, 30, 3\), but its observation space is uint8 of shape"),
        ("size", r"returned uint8 of shape \(10, 30, 3\), but"),
        ("no info", r":Wrong.reset\(\) returned 1 value; Gymnasium's reset returns \(observation, info\)$"),
        ("four values", r":Wrong.step\(\) returned 4 values; Gymnasium's step returns \(observation, reward"),
        ("vector with nan", ":Wrong returned an observation that is not finite; observations must be finite numbers$"),
        ("vector with infinity later", "returned an observation that is not finite"),
    ],
)
def test_a_mistake_of_an_environment_is_one_line_before_anything_starts(mistake, message):
    with pytest.raises(ConfigError, match=message) as error:
        describe(Config(env=f"{__name__}:Wrong", env_args={"mistake": mistake}))
    assert "\n" not in str(error.value)


def test_a_time_limit_does_not_hide_that_a_step_returns_four_values():
    with pytest.raises(ConfigError, match=r"^WrongWithLimit-v0.step\(\) returned 4 values; Gymnasium's step"):
        describe(Config(env="WrongWithLimit-v0"))


@pytest.mark.parametrize("name", ["gunreal/Catch-v0", "gunreal/RareGoalMaze-v0"])
def test_own_environments_are_those_of_gymnasium(name):
    env = gymnasium.make(name, render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    assert env.render().shape == (84, 84, 3)


def test_functions_make_environments():
    """By name, with the arguments of `env_args`; a registered id of the same name goes first."""
    assert describe(Config(env="gunreal.envs:gunreal/Catch-v0")).num_actions == 3
    made = describe(Config(env="gunreal.envs.catch:Catch", observation="rgb"))
    assert made.num_actions == 3 and made.frame == (3, 84, 84)
    small = describe(Config(env="gunreal.envs.maze:RareGoalMaze", env_args={"size": 7}))
    assert small.num_actions == describe(Config(env="gunreal/RareGoalMaze-v0")).num_actions
