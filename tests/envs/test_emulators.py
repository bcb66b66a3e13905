"""Training has the same episodes with either emulator."""

import contextlib
import dataclasses
import re

import numpy as np
import pytest
from gunreal_emulator import build
from gunreal_emulator.ale import OwnALE
from gunreal_emulator.console import loaded_game

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.atari import why_ale
from gunreal.envs.make import make


def episodes(config, steps, extra=()):
    env, rng = make(config, 2, extra), np.random.default_rng(0)
    done, out = np.ones(2, bool), []
    for t in range(steps):
        out.append(env.step(rng.integers(env.num_actions, size=2).astype(np.int32), done, np.array([5, 6 + t])))
        done = out[-1].terminated | out[-1].truncated
    env.close()
    return out


@pytest.mark.parametrize("options", [
    {"env": "ALE/Breakout-v5"},
    {"env": "ALE/Pong-v5", "protocol": "v5", "observation": "rgb"},
    {"env": "ALE/Asterix-v5", "env_args": {"max_num_frames_per_episode": 200, "full_action_space": True}},
    {"env": "ALE/BattleZone-v5", "env_args": {"frameskip": 1}},
    {"env": "ALE/Pong-v5", "env_args": {"mode": 1, "difficulty": 1}},
])  # fmt: skip
def test_episodes_are_the_same(options):
    config = Config(**options)
    theirs, ours = (episodes(dataclasses.replace(config, emulator=e), 150, ("lives", "ram")) for e in ("ale", "own"))
    for a, b in zip(theirs, ours, strict=True):
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        for key in ("lives", "ram"):
            np.testing.assert_array_equal(a.extra[key], b.extra[key])


@pytest.mark.parametrize(("env", "reason"), [("ALE/Pong-v5", ""), ("ALE/Pitfall2-v5", "pitfall2 is not supported.*")])
def test_auto_uses_the_own_emulator_where_it_can(env, reason):
    """Otherwise ale-py, and says why in one line."""
    config = Config(env=env, emulator="auto")
    assert re.fullmatch(reason and f"--emulator auto uses ale-py: .*{reason}", why_ale(config))
    with contextlib.closing(make(config, 1)) as made:
        assert isinstance(made._consoles[0].ale, OwnALE) == (not reason)


def test_auto_uses_ale_py_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "library_path", lambda: build.compile_library(tmp_path / "library"))
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    build.library.cache_clear()
    loaded_game.cache_clear()
    try:
        config = Config(env="ALE/Pong-v5", emulator="auto")
        assert "install g++" in why_ale(config)
        make(config, 1).close()
        with pytest.raises(ConfigError, match="install g\\+\\+"):
            make(dataclasses.replace(config, emulator="own"), 1)
    finally:
        build.library.cache_clear()
