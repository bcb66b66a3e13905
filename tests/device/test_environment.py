"""The environments of device runs: what there is, and their observations as frames."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from scripted_functional import ScriptedFunctional

jax = pytest.importorskip("jax")
from gunreal.config.schema import Config, ConfigError  # noqa: E402
from gunreal.device.environment import check_environment, frames, open_environment  # noqa: E402
from gunreal.envs.raw import converter, is_image  # noqa: E402
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
    found, vector, _ = frames(config, Spec(shape, 1, dtype, 3), space)(seen)
    assert found.dtype == dtype and vector.shape == (3, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if not is_image(space) and len(space.shape) < 2:
        both = spaces.Dict({"image": box((24, 24)), "other": space})
        observation = {"image": np.zeros((3, 24, 24), np.uint8), "other": seen}
        _, vector, _ = frames(config, Spec((1, 24, 24), 1, "uint8", 3), both)(observation)
        np.testing.assert_allclose(vector, expected, rtol=1e-6)


def test_images_are_not_resized():
    with pytest.raises(ConfigError, match=r"which device runs do not resize; use --frame_size 24"):
        frames(Config(), Spec((1, 84, 84), 1, "uint8", 3), box((24, 24)))


OTHERS = ["CartPole-v1", "scripted_env:Scripted", "gunreal/NavMazeStatic-v0"]
TOO_LARGE = {"frameskip": 20_000, "noop_max": 20_000, "max_num_frames_per_episode": 3_000_000_000}
UNKNOWN = "env_args do not fit {} in device runs: .*'max_episode_steps'; remove"


@pytest.mark.parametrize(
    ("env", "args", "message"),
    [(env, {}, f"{env} cannot run on a device; use an Atari game") for env in OTHERS]
    + [("ALE/Pitfall2-v5", {}, "pitfall")]
    + [(env, {"max_episode_steps": 5}, UNKNOWN.format(env)) for env in ("gunreal/Catch-v0", "gunreal/RareGoalMaze-v0")]
    + [
        ("ALE/Pong-v5", {name: value}, f"env_args do not fit ALE/Pong-v5: {name} is .*must be a whole number")
        for name, value in TOO_LARGE.items()
    ],
)
def test_what_cannot_run_is_refused(env, args, message):
    with pytest.raises(ConfigError, match=message):
        open_environment(Config(env=env, env_args=args), 1)


def test_atari_games_run_on_the_own_emulator():
    env = open_environment(Config(env="ALE/Pong-v5"), 3)
    state, first = env.init(np.array([1, 2, 1], np.int32))
    assert first.shape == (3, 1, 84, 84) and first.dtype == np.uint8
    assert (first[0] == first[2]).all() and env.action_space.n == 6
    _, frame, reward, terminated, truncated = env.step(state, np.zeros(3, np.int32))
    assert frame.shape == first.shape and reward.dtype == np.float32
    assert not (terminated | truncated).any()


class Changed(ScriptedFunctional):
    """The scripted environments with one change in what `init` or `step` returns."""

    def __init__(self, init=lambda *values: values, step=lambda *values: values):
        super().__init__()
        self._change = init, step

    def init(self, seeds):
        return self._change[0](*super().init(seeds))

    def step(self, state, actions):
        return self._change[1](*super().step(state, actions))


def failing(*values):
    raise ValueError("no\nluck")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": lambda state, seen: seen}, "my:make: init returns 1 value; return state and observations"),
        (
            {"step": lambda *values: values[:4]},
            "my:make: step returns 4 values; return state, observations, rewards, terminated and truncated",
        ),
        (
            {"step": lambda state, *rest: (state | {"t": state["t"] * 1.0}, *rest)},
            "my:make: step changes state['t'] from int32 of shape (4,) to float32 of shape (4,); keep the dtype and",
        ),
        (
            {"step": lambda state, *rest: (state | {"new": state["t"]}, *rest)},
            "my:make: step returns a state of another structure than init; return the same one",
        ),
        (
            {"init": lambda state, seen: (state | {"t": 0}, seen)},
            "my:make: state['t'] of init has shape () for 4 agents; its first axis must be that of the agents",
        ),
        (
            {"step": lambda state, seen, reward, *ends: (state, seen, reward[0], *ends)},
            "my:make returns rewards of shape () for 4 agents; return shape (4,)",
        ),
        (
            {"init": lambda state, seen: (state, seen[:, :2])},
            "my:make returns observations of shape (4, 2) for 4 agents; return shape (4, 3)",
        ),
        ({"step": failing}, "my:make fails in step: ValueError: no luck ("),
    ],
)
def test_what_an_environment_returns_is_checked(change, message):
    with pytest.raises(ConfigError) as error:
        check_environment(Config(env="my:make"), Changed(**change), 4)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_images_are_uint8():
    def image(state, seen, *rest):
        return state, jax.numpy.zeros((4, 24, 24)), *rest

    env = Changed(image, image)
    env.observation_space = box((24, 24))
    with pytest.raises(ConfigError, match="my:make observes uint8 images, but returns float32; convert them to uint8"):
        check_environment(Config(env="my:make"), env, 4)
