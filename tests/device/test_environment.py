"""The environments of device runs: what there is, and their observations as frames."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("jax")
from gunreal.config.schema import Config, ConfigError  # noqa: E402
from gunreal.device.environment import frames, open_environment  # noqa: E402
from gunreal.envs.raw import converter  # noqa: E402
from gunreal.experience.spec import Spec  # noqa: E402

IMAGES = [(24, 24), (24, 24, 1), (24, 24, 3), (1, 24, 24)]


def box(shape, dtype=np.uint8):
    return spaces.Box(0, 255, shape, dtype)


@pytest.mark.parametrize(
    ("space", "mode"),
    [(box(shape), mode) for shape in IMAGES for mode in ("gray", "rgb")]
    + [(space, "gray") for space in (box((5,)), box((2, 3), np.float32), spaces.Discrete(4, start=2))],
)
def test_frames_are_those_of_other_runs(space, mode):
    config = Config(frame_size=24, observation=mode)
    shape, dtype, convert = converter(config, space)
    space.seed(1)
    seen = np.stack([space.sample() for _ in range(3)])
    expected = np.empty((3, *shape), dtype)
    for observation, out in zip(seen, expected, strict=True):
        convert(observation, out)
    found = frames(config, Spec(shape, 1, dtype, 3), space)(seen)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_images_are_not_resized():
    with pytest.raises(ConfigError, match=r"which device runs do not resize; use --frame_size 24"):
        frames(Config(), Spec((1, 84, 84), 1, "uint8", 3), box((24, 24)))


@pytest.mark.parametrize("env", ["CartPole-v1", "scripted_env:Scripted", "gunreal/NavMazeStatic-v0"])
def test_others_are_refused(env):
    with pytest.raises(ConfigError, match=f"{env} cannot run on a device; use an Atari game"):
        open_environment(Config(env=env), 1)


def test_atari_games_run_on_the_own_emulator():
    env = open_environment(Config(env="ALE/Pong-v5"), 3)
    state, first = env.init(np.array([1, 2, 1], np.int32))
    assert first.shape == (3, 1, 84, 84) and first.dtype == np.uint8
    assert (first[0] == first[2]).all() and env.action_space.n == 6
    _, frame, reward, terminated, truncated = env.step(state, np.zeros(3, np.int32))
    assert frame.shape == first.shape and reward.dtype == np.float32
    assert not (terminated | truncated).any()


def test_a_game_that_the_emulator_lacks_is_refused():
    with pytest.raises(ConfigError, match="pitfall"):
        open_environment(Config(env="ALE/Pitfall2-v5"), 1)
