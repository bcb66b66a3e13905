from __future__ import annotations

import re

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec
from wording import MEAN

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.make import describe


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            "PongNoFrameskip-v4",
            "PongNoFrameskip-.* is an old id without gunreal's Atari protocol; use --env ALE/Pong-v5",
        ),
        ("Breakout-v4", "Breakout-v4 is an old id .*; use --env ALE/Breakout-v5"),
        ("Pong-ram-v4", "Pong-ram-v4 is an old id .*; use --env ALE/Pong-v5"),
        ("ale_py:SpaceInvaders-v0", "ale_py:SpaceInvaders-v0 is an old id .*; use --env ALE/SpaceInvaders-v5"),
        ("ale_py:ALE/Pong-v5", "ale_py:ALE/Pong-v5 is an id .*; use --env ALE/Pong-v5"),
        ("NoGame-v0", "NoGame-v0 is an old id without gunreal's Atari protocol; choose one of gunreal envs"),
    ],
)
def test_ids_of_ale_py_without_the_protocol_are_refused(env, message, monkeypatch):
    for name, game in (("Pong-ram-v4", "pong"), ("NoGame-v0", "none")):  # older versions of ale-py register the first
        spec = EnvSpec(name, "ale_py.env:AtariEnv", kwargs={"game": game, "obs_type": "ram"})
        monkeypatch.setitem(gymnasium.registry, name, spec)
    with pytest.raises(ConfigError, match=f"^{message}$"):
        describe(Config(env=env))


@pytest.mark.parametrize(
    ("env", "suggestion"),
    [
        ("BreakoutNoFrameskip", f"{MEAN} ALE/Breakout-v5?"),
        ("Pong-ram-v4", f"{MEAN} ALE/Pong-v5?"),
        ("ALE/Breakout", f"{MEAN} ALE/Breakout-v5?"),
        ("ale_py:Pong-v5", f"{MEAN} ALE/Pong-v5?"),
        ("ALE/Pitfal-v5", f"{MEAN} ALE/Pitfall-v5 or ALE/Pitfall2-v5?"),
        ("CartPole-v7", f"{MEAN} CartPole-v1?"),
        ("Corridor-v0", "is its package installed?"),
        ("gunreal.envs:Corridor-v0", "correct the name"),
    ],
)
def test_only_close_ids_with_a_protocol_are_suggested(env, suggestion):
    with pytest.raises(ConfigError) as error:
        describe(Config(env=env))
    assert re.search(r"(?:: |; )(did .*?\?|is .*?\?|correct.*)", str(error.value))[1] == suggestion


def test_module_ids_and_registration():
    assert describe(Config(env="gunreal.envs:gunreal/Catch-v0")).num_actions == 3


def test_functions_make_environments():
    """By name, with the arguments of `env_args`; a registered id of the same name goes first."""
    made = describe(Config(env="gunreal.envs.catch:Catch", observation="rgb"))
    assert made.num_actions == 3 and made.frame == (3, 84, 84)
    small = describe(Config(env="gunreal.envs.maze:RareGoalMaze", env_args={"size": 7}))
    assert small.num_actions == describe(Config(env="gunreal/RareGoalMaze-v0")).num_actions
