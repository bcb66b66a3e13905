"""Environments and arguments that are refused, each in one line that names the fix."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from wording import MEAN

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.catch import Catch
from gunreal.envs.make import describe, make
from gunreal.envs.maze import RareGoalMaze
from gunreal.envs.vizdoom_maze import NavMaze, SeekAvoid

IMAGE = spaces.Box(0, 255, (20, 30, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
TWO_IMAGES = spaces.Dict({"a": IMAGE, "b": IMAGE, "compass": VECTOR})


class Spaces(gymnasium.Env):
    """Is never reset."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action or spaces.Discrete(2)


class WithoutActions(gymnasium.Env):
    observation_space = IMAGE


class WithoutObservations(gymnasium.Env):
    action_space = spaces.Discrete(2)


class FunctionalWithoutSpaces:
    def init(self, seeds):
        """Never called."""

    def step(self, state, actions):
        """Never called."""


gymnasium.register("NeedsNothingThere-v0", "nothing_there.env:Env")


def of_spaces(observation=IMAGE, action=None, **options):
    return {"env": f"{__name__}:Spaces", "env_args": {"observation": observation, "action": action}, **options}


def pong(**args):
    return {"env": "ALE/Pong-v5", "env_args": args}


CATCH = "gunreal.envs.catch:Catch"
BAD = [
    ({"env": "CartPol-v1"}, f"unknown environment 'CartPol-v1': {MEAN} CartPole-v1"),
    ({"env": "CartPole-v7"}, rf"{MEAN} CartPole-v1\?"),
    ({"env": "Pong"}, rf"unknown environment 'Pong': {MEAN} ALE/Pong-v5\?"),
    ({"env": "Pong-v5"}, f"{MEAN} .*ALE/Pong-v5"),
    ({"env": "Pong-ram-v4"}, r"^Pong-ram-v4 is an old id .*; use --env ALE/Pong-v5$"),
    ({"env": "ALE/Breakout"}, rf"{MEAN} ALE/Breakout-v5\?"),
    ({"env": "ALE/Pogn-v5"}, f"unknown game 'ALE/Pogn-v5': {MEAN} .*ALE/Pong-v5"),
    ({"env": "ALE/spaceinvaders-v5"}, f"{MEAN} ALE/SpaceInvaders-v5"),
    ({"env": "Nowhere-v0"}, r"[:;] is its package installed\?"),
    ({"env": "gunreal.envs:Nowhere-v0"}, "; correct the name$"),
    ({"env": "PongNoFrameskip-v4"}, "is an old id without gunreal's Atari protocol; use --env ALE/Pong-v5$"),
    ({"env": "ale_py:SpaceInvaders-v0"}, "^ale_py:SpaceInvaders-v0 is an old id .*; use --env ALE/SpaceInvaders-v5$"),
    ({"env": "NoGame-v0"}, "^NoGame-v0 is an old id without gunreal's Atari protocol; choose one of gunreal envs$"),
    ({"env": "gunreal/Cach-v0"}, f"{MEAN} gunreal/Catch-v0"),
    ({"env": "nomodule:Id-v0"}, "no module 'nomodule'"),
    ({"env": "subprocess:run", "env_args": {"args": "true"}}, "belongs to Python itself"),
    ({"env": "numpy:zeros", "env_args": {"shape": 3}}, "returned a numpy.ndarray; return a gymnasium.Env"),
    ({"env": "gunreal.envs.catch:Cach"}, f"has no environment, function or class 'Cach'; {MEAN} .*catch:Catch"),
    ({"env": f"{__name__}:WithoutActions"}, "WithoutActions has no action_space; set it in"),
    ({"env": f"{__name__}:WithoutObservations"}, "WithoutObservations has no observation_space; set it in"),
    ({"env": f"{__name__}:FunctionalWithoutSpaces"}, "FunctionalWithoutSpaces has no action_space; set it in"),
    ({"env": "NeedsNothingThere-v0"}, "^NeedsNothing.* needs a missing package: .*'nothing_there'; install it$"),
    ({"env": "GymV21Environment-v0"}, "^GymV21.* cannot be imported: .*pip install .*shimmy"),
    ({"env": CATCH, "env_args": {"gravity": 1}}, "env_args do not fit gunreal.*'gravity'"),
    ({"env": "CartPole-v1", "env_args": {"max_episode_steps": "a"}}, "env_args do not fit CartPole-v1: .*'str'"),
    ({"env": "FrozenLake-v1", "env_args": {"map_name": "none"}}, "env_args do not fit FrozenLake.*'none'"),
    ({"env": "CartPole-v1", "env_args": {"gravity": 1}}, "env_args do not fit CartPole-v1: .*'gravity'"),
    ({"env": "CartPole-v1", "observation": "rgb"}, "CartPole-v1 does not observe a uint8 image; leave it out"),
    ({"env": "Pendulum-v1"}, "continuous actions; wrap it"),
    (of_spaces(action=spaces.MultiDiscrete([10, 101])), "1,010 combinations of actions; wrap it .* at most 1,000$"),
    (of_spaces(action=spaces.Tuple([spaces.Discrete(2)])), "Tuple actions; wrap it"),
    (of_spaces(spaces.Box(0, 1, (20, 30, 3), np.float32)), "as uint8 from 0 to 255, or .*FlattenObservation"),
    (of_spaces(spaces.Box(0, 1, (84, 84), np.float64)), "observes float64 of .*; return single images, gray or RGB"),
    (of_spaces(spaces.Box(0, 255, (7, 7, 3), np.uint8)), "too small .*RGBImgPartialObsWrapper.*--observation rgb"),
    (of_spaces(spaces.Box(0, 255, (3, 84, 19), np.uint8)), "too small for a picture"),
    (of_spaces(spaces.Box(0, 1, (0,))), r"observes nothing, of shape \(0,\); give it at least one number$"),
    (of_spaces(spaces.Box(0, 255, (20, 30, 4), np.uint8)), "single images, gray or RGB, which .*--frame_stack"),
    (of_spaces(spaces.Tuple([IMAGE, IMAGE])), "observes Tuple"),
    (of_spaces(TWO_IMAGES), r"several image observations \['a', 'b'\]; choose one with --image_key"),
    (of_spaces(TWO_IMAGES, image_key="c"), r"image_key 'c' is not an image .*; choose one of \['a', 'b'\]"),
    (of_spaces(spaces.Dict({"name": spaces.Text(9)})), "none a uint8 image; wrap it to give an image or numbers$"),
    (of_spaces(spaces.Dict({"compass": VECTOR}), image_key="compass"), "none a uint8 image; leave out image_key$"),
    (of_spaces(image_key="rgb"), "image_key 'rgb': .*:Spaces has no Dict observation; leave it out"),
    (of_spaces(TWO_IMAGES, image_key="a", vector_keys="b"), "has no vector 'b' beside an image; choose from compass$"),
    (of_spaces(vector_keys="compass"), "has no vector 'compass' beside an image; leave it out$"),
    (pong() | {"image_key": "rgb"}, "image_key 'rgb': ALE/Pong-v5 has no Dict observation; leave it"),
    (pong() | {"protocol": "v4"}, "unknown protocol 'v4'"),
    (pong(obs_type="ram"), "obs_type"),
    (pong(noop_max=True), "noop_max is True, but must be a whole number"),
    (pong(repeat_action_probability=2), "must be a number from 0 to 1"),
    (pong(full_action_space=1), "must be true or false"),
    (pong(mode=77), "pong has no mode 77; use one of 0, 1"),
    (pong(difficulty=9) | {"emulator": "ale"}, "pong has no difficulty 9; use one of"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_input(fields, message, monkeypatch):
    for name, game in (("Pong-ram-v4", "pong"), ("NoGame-v0", "none")):  # older versions of ale-py register the first
        spec = EnvSpec(name, "ale_py.env:AtariEnv", kwargs={"game": game, "obs_type": "ram"})
        monkeypatch.setitem(gymnasium.registry, name, spec)
    with pytest.raises(ConfigError, match=message) as error:
        describe(Config(**fields))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "extra", "message"),
    [
        (Config(env="ALE/Pitfall2-v5", emulator="own"), (), "--emulator ale"),
        (Config(env="gunreal/Catch-v0"), ("depth",), r"records 'depth'.*of reset\(\) have.*env_args depth=true"),
        (Config(env="ALE/Pong-v5"), ("depth",), r"cannot record \['depth'\]"),
    ],
)
def test_what_is_found_when_an_environment_opens(config, extra, message):
    with pytest.raises(ConfigError, match=message) as error:
        make(config, 1, extra).step(np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1, np.int64))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Catch, {"rows": 1}, "rows is 1, but must be 2 to 84"),
        (Catch, {"rows": 9.5}, "rows is 9.5, but must be 2 to 84"),
        (Catch, {"rows": True}, "rows is True, but must be 2 to 84"),
        (Catch, {"rows": "9"}, "rows is '9', but must be 2 to 84"),
        (Catch, {"rows": float("nan")}, "rows is nan, but must be 2 to 84"),
        (Catch, {"delay": -1}, "delay is -1, but must be 0 to"),
        (RareGoalMaze, {"size": 8}, "size is 8, but must be odd and 5 to 41"),
        (RareGoalMaze, {"max_steps": 0}, "max_steps is 0, but must be 1 to"),
        (RareGoalMaze, {"min_distance": 1000}, "min_distance is 1000, but must be 0 to"),
        (RareGoalMaze, {"openings": -0.1}, "openings is -0.1, but must be 0 to 1"),
        (RareGoalMaze, {"openings": float("nan")}, "openings is nan, but must be 0 to 1"),
        (RareGoalMaze, {"openings": "0.5"}, "openings is '0.5', but must be 0 to 1"),
        (NavMaze, {"rows": 8}, "rows is 8, but must be odd and 5 to 25"),
        (NavMaze, {"num_apples": 9}, "num_apples is 9, but must be 0 to 8"),
        (NavMaze, {"max_steps": 0}, "max_steps is 0"),
        (NavMaze, {"pixels": "grey"}, "pixels is 'grey', but must be rgb or gray"),
        (NavMaze, {"size": 481}, r"the image size \(frame_size\) is 481, but must be 20 to 480"),
        (NavMaze, {"size": 241, "depth": True}, r"size \(frame_size\) with depth is 241, but must be 20 to 240"),
        (SeekAvoid, {"rows": 4}, "rows is 4, but must be 5 to 25"),
        (SeekAvoid, {"num_lemons": 40}, "num_lemons is 40, but must be 0 to 39"),
    ],
)
def test_impossible_options(make, options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)
