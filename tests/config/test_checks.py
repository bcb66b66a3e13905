"""Rules about values that are only invalid, or only without effect, together with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.schema import Config, ConfigError

DQN = {"env": "gunreal/Catch-v0", "runner": "device", "algorithm": "dqn"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (DQN | {"dqn_steps": 21}, "dqn_steps 21 is above t_max 20; use --dqn_steps 20, or raise t_max"),
        (DQN | {"t_max": 2, "device_batches": 1}, "dqn_steps 3 is above t_max 2; use --dqn_steps 2, or raise t_max"),
        (
            DQN | {"normalize_returns": False, "tasks": ("rp",)},
            "normalize_returns has no effect on dqn without the task vr; leave it out or add --tasks vr",
        ),
    ],
)
def test_these_values_do_not_go_together(fields, message):
    with pytest.raises(ConfigError) as error:
        check(Config(**fields))
    assert str(error.value) == message


@pytest.mark.parametrize(
    "fields",
    [
        DQN | {"dqn_steps": 20},
        DQN | {"normalize_returns": False, "tasks": ("vr",)},
        DQN | {"normalize_returns": False, "tasks": ("mine:Task",)},  # its name may be vr
        {"runner": "device", "t_max": 2, "device_batches": 1},
        {"env": "ALE/Pong-v5", "emulator": "ale"},
        {"eval_minutes": 1, "eval_episodes": 5},
    ],
)
def test_these_do(fields, monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda name: True)  # as if JAX were
    check(Config(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "caf\udce9"}, "name contains 'caf\\udce9', which is not Unicode text; write it in UTF-8"),
        ({"tasks": ("a:\udce9",)}, "tasks contains 'a:\\udce9', which is not Unicode text; write it in UTF-8"),
        ({"env_args": {"\udce9": 1}}, "env_args contains '\\udce9', which is not Unicode text; write it in UTF-8"),
        (
            {"env_args": {"size": {1: 2}}},
            "env_args.size has the key 1, which TOML cannot hold; use strings as keys",
        ),
        ({"logdir": "a\0b"}, "logdir 'a\\x00b' is not the path of a folder; remove the null character"),
    ],
)
def test_values_that_no_file_can_hold_are_rejected(fields, message):
    with pytest.raises(ConfigError) as error:
        check(Config(**fields))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tasks": ("pc", "./mine:Task")}, "task './mine:Task' names a file; write mine:Task, without a path and .py"),
        ({"network": "mine.py:Net"}, "network 'mine.py:Net' names a file; write mine:Net, without a path and .py"),
        (
            {"env": "/a/mine.py:make"},
            "env '/a/mine.py:make' names a file; write mine:make, without a path and .py, and run the command in the "
            "folder /a",
        ),
        (
            {"tasks": ("there/mine:Task",)},
            "task 'there/mine:Task' names a file; write mine:Task, without a path and .py, and run the command in the "
            "folder there",
        ),
        (
            {"env": f"{Path.cwd()}/mine.py:make"},
            f"env '{Path.cwd()}/mine.py:make' names a file; write mine:make, without a path and .py",
        ),
    ],
)
def test_a_plug_in_is_named_by_its_module(fields, message):
    with pytest.raises(ConfigError) as error:
        check(Config(**fields))
    assert str(error.value) == message
    check(Config(env="ale_py:ALE/Pong-v5"))


def test_several_nodes_need_ray(monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda package: package != "ray")
    with pytest.raises(ConfigError, match=r'need Ray; install it with pip install "gunreal\[cluster\]"'):
        check(Config(nodes=2))


def test_other_scripts_and_tuples_can_be_saved(tmp_path):
    config = Config(name="café 試", logdir="Läufe", env_args={"ключ": "😀", "size": (84, (1, 2))})
    check(config)
    save(config, tmp_path / "config.toml")
    assert Config(**load(tmp_path / "config.toml")) == config
