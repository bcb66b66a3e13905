from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gunreal.config.schema import Config
from gunreal.envs.generic import GenericEnv
from gunreal.envs.make import describe, make

IMAGE = spaces.Box(0, 255, (20, 30, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)


class Fake(gymnasium.Env):
    """Observes samples of any space, ends after three steps, and tells what was done to it in `info`."""

    def __init__(self, observation, action=None, key=None):
        self.observation_space, self.action_space = observation, action or spaces.Discrete(2)
        self._key = key

    def _observe(self, action=0):
        info = {"action": action, "speed": np.full(2, self.time, np.float32)}
        return self.observation_space.sample(), info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self._observe()

    def step(self, action):
        self.time += 1
        observation, info = self._observe(action)
        return observation, 2.5, self.time == 3, self.time >= 3, info


class Closing(Fake):
    closed = False

    def close(self):
        self.closed = True


gymnasium.register("Fake-v0", Fake)


def fake(space=IMAGE, action=None, **options):
    return Config(env="Fake-v0", env_args={"observation": space, "action": action}, **options)


def step(env, action=0, reset=False, seed=0):
    n = env.num_envs
    return env.step(np.full(n, action, np.int32), np.full(n, reset), np.full(n, seed))


def test_a_small_grid_of_numbers_is_a_vector():
    assert describe(fake(spaces.Box(0, 1, (10, 10, 4), np.float32))).frame == (400,)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (3, 20, 30), (1, 20, 30), (84, 84, 3)])
def test_images_become_gray_squares(shape):
    import cv2

    space = spaces.Box(0, 255, shape, np.uint8)
    env = make(fake(space), 2)
    got = step(env, reset=True, seed=4).frame
    space.seed(4)
    image = space.sample()
    assert got.shape == (2, 1, 84, 84) and got.dtype == np.uint8
    if shape[0] in (1, 3):
        image = image.transpose(1, 2, 0)
    if 3 in shape:
        image = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)  # ITU-R BT.601
    expected = cv2.resize(image.reshape(image.shape[:2]), (84, 84), interpolation=cv2.INTER_AREA)
    np.testing.assert_allclose(got[1, 0].astype(int), expected, atol=2)
    env.close()


@pytest.mark.parametrize("size", [64, 84])
@pytest.mark.parametrize(
    "shape", [(20, 30), (20, 30, 1), (20, 30, 3), (3, 20, 30), (1, 20, 30), (84, 84, 3), (3, 84, 84), (84, 84)]
)
def test_rgb_frames_keep_their_channels_and_gray_ones_get_three(shape, size):
    import cv2

    space = spaces.Box(0, 255, shape, np.uint8)
    config = fake(space, observation="rgb", frame_size=size, frame_stack=1)
    assert describe(config).observation == (3, size, size)
    env = make(config, 2)
    got = step(env, reset=True, seed=4).frame
    space.seed(4)
    image = space.sample()
    assert got.shape == (2, 3, size, size) and got.dtype == np.uint8
    planes = image if len(shape) == 3 and shape[0] in (1, 3) else image.reshape(*shape[:2], -1).transpose(2, 0, 1)
    for channel, plane in zip(got[1], np.broadcast_to(planes, (3, *planes.shape[1:])), strict=True):
        expected = cv2.resize(np.ascontiguousarray(plane), (size, size), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(channel, expected)
    env.close()


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), 3),
        (spaces.Box(-1, 1, (2, 4), np.float32), 8),
        (spaces.Discrete(5), 5),
        (spaces.MultiBinary(6), 6),
    ],
)
def test_vectors_are_flat_float32(space, size):
    env = make(fake(space), 2)
    got = step(env, reset=True, seed=4).frame
    space.seed(4)
    assert got.shape == (2, size) and got.dtype == np.float32
    np.testing.assert_allclose(got[0], spaces.flatten(space, space.sample()), rtol=1e-6)
    assert describe(fake(space)).stack == 1
    env.close()


def test_bytes_of_a_vector_are_scaled():
    space = spaces.Box(0, 255, (128,), np.uint8)
    env = make(fake(space), 1)
    got = step(env, reset=True, seed=4).frame
    space.seed(4)
    np.testing.assert_allclose(got[0], space.sample() / 255, rtol=1e-5)
    env.close()


def test_rewards_ends_and_actions():
    env = make(fake(action=spaces.Discrete(4, start=-1)), 2, ("action",))
    assert env.num_actions == 4
    assert step(env, reset=True).reward.tolist() == [0, 0]
    for t in range(3):
        result = env.step(np.array([0, 3], np.int32), np.zeros(2, bool), np.zeros(2, np.int64))
        assert result.extra["action"].tolist() == [-1, 2]  # the space starts at -1
        assert result.reward.tolist() == [2.5, 2.5]  # raw
        assert result.terminated.tolist() == [t == 2] * 2 and not result.truncated.any()  # never both
    env.close()


def test_a_single_number_that_is_not_finite_is_named(monkeypatch):
    """Later than in the first step, in one of several copies."""
    env = make(fake(VECTOR), 2)
    step(env, reset=True)
    step(env)
    monkeypatch.setattr(env._envs[1].unwrapped, "_observe", lambda action: (np.array([0, np.nan, 0], np.float32), {}))
    with pytest.raises(ValueError, match="Fake-v0 returned an observation that is not finite; observations must be"):
        step(env)
    env.close()


def test_gymnasium_time_limit_truncates():
    env = make(Config(env="CartPole-v1", env_args={"max_episode_steps": 4}), 1)
    step(env, reset=True)
    assert [bool(step(env, t % 2).truncated[0]) for t in range(4)] == [False, False, False, True]
    env.close()


def test_dict_observations():
    parts = {"compass": VECTOR, "goal": spaces.Discrete(3, start=1), "map": spaces.Box(0, 1, (5, 5)), "view": IMAGE}
    env = make(fake(spaces.Dict(parts)), 2, ("compass", "goal", "speed"))
    result = step(env, reset=True)
    assert result.frame.shape == (2, 1, 84, 84) and env.raw.ignored == ("map",)
    one_hot = np.eye(3)[result.extra["goal"] - 1]
    np.testing.assert_array_equal(
        result.vector, np.concatenate([result.extra["compass"], one_hot], 1, dtype=np.float32)
    )
    assert result.extra["compass"].shape == (2, 3)  # of the observation
    assert step(env).extra["speed"].tolist() == [[1, 1], [1, 1]]  # of info
    env.close()
    for keys, numbers in (("", 0), ("goal", 3), (" goal, compass", 6)):
        assert describe(fake(spaces.Dict(parts), vector_keys=keys)).vectors == numbers
    assert describe(fake(spaces.Dict({"depth": IMAGE, "rgb": IMAGE}))).is_image


def test_image_key_selects_the_entry():
    depth = spaces.Box(0, 255, (84, 84, 1), np.uint8)
    space = spaces.Dict({"depth": depth, "rgb": IMAGE, "compass": VECTOR})
    frames = {}
    for key in ("", "rgb", "depth"):
        env = make(fake(space, image_key=key), 1)
        frames[key] = step(env, reset=True, seed=4).frame[0]
        env.close()
    space.seed(4)
    np.testing.assert_array_equal(frames["depth"][0], space.sample()["depth"][..., 0])
    np.testing.assert_array_equal(frames[""], frames["rgb"])
    assert (frames["rgb"] != frames["depth"]).any()


def test_environments_that_were_opened_before_one_that_fails_are_closed(monkeypatch):
    opened = []

    def open_env(config):
        if len(opened) == 2:
            raise OSError("too many open files")
        opened.append(Closing(VECTOR))
        return opened[-1]

    monkeypatch.setattr("gunreal.envs.generic.open_env", open_env)
    with pytest.raises(OSError, match="too many open files"):
        GenericEnv(fake(VECTOR), 3)
    assert [env.closed for env in opened] == [True, True]
