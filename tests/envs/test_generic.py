"""Gymnasium environments: images become squares, all else one vector, and combinations of actions are numbered."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import side_effects
from gymnasium import spaces

from gunreal.config.schema import Config
from gunreal.envs.make import describe, make, make_raw

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


gymnasium.register("Fake-v0", Fake)


def fake(space=IMAGE, action=None, **options):
    return Config(env="Fake-v0", env_args={"observation": space, "action": action}, **options)


def step(env, action=0, reset=False, seed=0):
    n = env.num_envs
    return env.step(np.full(n, action, np.int32), np.full(n, reset), np.full(n, seed))


SHAPES = [(20, 30), (20, 30, 1), (20, 30, 3), (3, 20, 30), (1, 20, 30), (84, 84), (3, 84, 84), (100, 90, 3)]


@pytest.mark.parametrize("observation", ["gray", "rgb"])
@pytest.mark.parametrize("shape", SHAPES)
def test_images_become_squares(shape, observation):
    """In gray by ITU-R BT.601. In color, gray ones get three channels."""
    import cv2

    space = spaces.Box(0, 255, shape, np.uint8)
    config = fake(space, observation=observation, frame_stack=1)
    env = make(config, 2)
    got = step(env, reset=True, seed=4).frame
    space.seed(4)
    image = space.sample()
    planes = image if len(shape) == 3 and shape[0] in (1, 3) else image.reshape(*shape[:2], -1).transpose(2, 0, 1)
    if observation == "gray" and len(planes) == 3:
        planes = np.rint(np.einsum("chw,c->hw", planes, [0.299, 0.587, 0.114]))[None].astype(np.uint8)
    channels = 1 if observation == "gray" else 3
    assert got.shape == (2, *describe(config).observation) == (2, channels, 84, 84) and got.dtype == np.uint8
    for channel, plane in zip(got[1], np.broadcast_to(planes, (channels, *planes.shape[1:])), strict=True):
        expected = cv2.resize(np.ascontiguousarray(plane), (84, 84), interpolation=cv2.INTER_AREA).astype(int)
        np.testing.assert_allclose(channel, expected, atol=2 if observation == "gray" else 0)
    env.close()


PLACE = spaces.Box(-1, 1, (2, 2), np.float64)
NESTED = spaces.Dict({"place": PLACE, "card": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])})
CARDS = spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)])


@pytest.mark.parametrize(
    ("space", "size"), [(PLACE, 4), (spaces.Discrete(5), 5), (spaces.MultiBinary(6), 6), (NESTED, 9), (CARDS, 45)]
)
def test_vectors_are_flat_float32(space, size):
    config = fake(space)
    env, raw = make(config, 2), make_raw(config)
    got = step(env, reset=True, seed=4).frame
    env.close()
    assert got.shape == (2, size) == (2, *describe(config).observation) and got.dtype == np.float32
    space.seed(4)
    np.testing.assert_allclose(got[0], spaces.flatten(space, space.sample()), rtol=1e-6)
    if isinstance(space, spaces.Dict | spaces.Tuple):  # of several parts
        np.testing.assert_array_equal(raw.reset(seed=4)[0].astype(np.float32), got[0])


def test_pictures_of_several_parts_are_not_made_vectors():
    """Flat, they would be thousands of numbers without their places."""
    for picture in (spaces.Box(0, 255, (30, 30), np.uint8), spaces.Box(0, 1, (30, 30), np.float32)):
        space = spaces.Tuple([picture, spaces.Discrete(2)])
        assert make_raw(fake(space)).observation_space == space


@pytest.mark.parametrize("start", [0, -1])
def test_combinations_of_actions_are_numbered(start):
    env = make(fake(VECTOR, spaces.MultiDiscrete([3, 4], start=[start, start])), 1, ("action",))
    assert env.num_actions == 12
    step(env, reset=True)
    taken = [step(env, number).extra["action"][0].tolist() for number in range(12)]
    assert taken == [[i + start, j + start] for i, j in np.ndindex(3, 4)]
    env.close()


@pytest.mark.parametrize("shape", [(2, 2), (3, 3)])  # 512 combinations are more than a byte counts
def test_binary_actions_are_combinations_too(shape):
    actions = spaces.MultiBinary(shape)
    wrapped = make_raw(fake(VECTOR, actions))
    assert wrapped.action_space == spaces.Discrete(2 ** np.prod(shape))
    for number, bits in enumerate(np.ndindex(*[2] * np.prod(shape))):
        action = wrapped.action(number)
        assert actions.contains(action) and tuple(action.ravel()) == bits


def test_a_thousand_combinations_are_not_too_many():
    assert describe(fake(VECTOR, spaces.MultiDiscrete([10, 100]))).num_actions == 1000


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


def test_what_was_opened_before_one_that_fails_is_closed():
    with pytest.raises(RuntimeError, match="Cannot create multiple"):
        make(Config(env="side_effects:Single"), 2)
    assert side_effects.Single.opened == 0
