"""Raw observations: they survive JSON, and become the frames of training."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gunreal.config.schema import Config
from gunreal.envs.make import look, make, make_raw
from gunreal.envs.raw import Raw, converter

SPACES = [
    spaces.Box(0, 255, (20, 30, 3), np.uint8),
    spaces.Box(0, 255, (128,), np.uint8),
    spaces.Box(-np.inf, np.inf, (2, 4), np.float64),
    spaces.Box(-5, 5, (3,), np.int64),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([3, 2], start=[-1, 5]),
    spaces.MultiBinary((2, 3)),
]
CONFIGS = [
    Config(env="ALE/Breakout-v5"),
    Config(env="ALE/Breakout-v5", protocol="v5", observation="rgb", frame_size=64),
    Config(env="gunreal/Catch-v0", frame_size=42),
    Config(env="gunreal/Catch-v0", observation="rgb"),
    Config(env="CartPole-v1"),
]


def frame_of(config, raw, observation):
    shape, dtype, convert = converter(config, raw.space)
    out = np.empty(shape, dtype)
    convert(raw.entry(observation), out)
    return out


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_survives_json(space):
    raw = Raw(space, "image", 3, vectors={"other": space})
    back = Raw.from_json(json.loads(json.dumps(raw.to_json())))
    assert (back.key, back.first_action) == ("image", 3)
    space.seed(1)
    for _ in range(5):
        observation = {"image": space.sample(), "other": space.sample()}
        one, two = (frame_of(Config(env="x"), r, observation) for r in (raw, back))
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
        if one.ndim == 1:
            one, two = (r.vector("x", observation) for r in (raw, back))
            np.testing.assert_array_equal(one, two)
            np.testing.assert_array_equal(one, frame_of(Config(env="x"), raw, {"image": observation["other"]}))


@pytest.mark.parametrize(
    ("shape", "dtype", "observation", "frame"),
    [
        ((7, 7, 3), "uint8", "rgb", (3, 84, 84)),
        ((7, 7, 1), "uint8", "gray", (1, 84, 84)),
        ((19, 40), "float32", "gray", (760,)),
        ((10, 10, 4), "float32", "gray", (400,)),
    ],
)
def test_small_arrays_are_pictures_or_vectors(shape, dtype, observation, frame):
    space = spaces.Box(0, 255, shape, np.dtype(dtype).type)
    assert converter(Config(env="x", observation=observation), space)[0] == frame


@pytest.mark.parametrize("space", [s for s in SPACES if s.shape != (20, 30, 3)], ids=str)
def test_an_observation_of_another_shape_is_an_error(space):
    for given in (np.zeros((1, *space.shape)), np.zeros((*space.shape, 1))):
        with pytest.raises(ValueError, match=r"^x returned an observation of shape \(.*but its observation space has"):
            frame_of(Config(env="x"), Raw(space), given)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.env}-{c.protocol}-{c.observation}")
def test_raw_episodes_are_those_of_training(config):
    spec, raw, _ = look(config)
    trained, env = make(config, 1), make_raw(config)
    actions, ended = np.random.default_rng(0).integers(spec.num_actions, size=200), 0
    observation = None
    for action in actions.tolist():
        reset = observation is None
        step = trained.step(np.array([action], np.int32), np.array([reset]), np.array([7 + ended]))
        if reset:
            observation, _ = env.reset(seed=7 + ended)
            assert env.observation_space.contains(observation)
        else:
            observation, reward, terminated, truncated, _ = env.step(action)
            assert (reward, terminated, truncated) == (step.reward[0], step.terminated[0], step.truncated[0])
            if terminated or truncated:
                ended += 1
        np.testing.assert_array_equal(frame_of(config, raw, observation), step.frame[0])
        if step.terminated[0] or step.truncated[0]:
            observation = None
    assert ended or config.env.startswith("ALE/")
    env.close()
    trained.close()


def test_colors_of_a_game_become_nearly_the_grays_of_training():
    """Whoever opens a game with `gymnasium.make` gets colors."""
    config = Config(env="ALE/Pong-v5")
    screens = []
    for kind in ("rgb", "grayscale"):
        env = gymnasium.make("ALE/Pong-v5", obs_type=kind)
        env.reset(seed=1)
        screens.append(env.step(0)[0])
        env.close()
    colors, grays = (frame_of(config, Raw(spaces.Box(0, 255, s.shape, np.uint8)), s).astype(int) for s in screens)
    assert colors.shape == (1, 84, 84) and grays.std() > 5
    np.testing.assert_allclose(colors, grays, atol=2)


def test_a_game_restarts_at_random_without_a_seed():
    env = make_raw(Config(env="ALE/Freeway-v5"))
    env.reset(seed=3)
    starts = {env.reset()[0].tobytes() for _ in range(8)}
    assert len(starts) > 1
