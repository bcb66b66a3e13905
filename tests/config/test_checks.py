"""Values that go together. test_schema.py has those that do not."""

from __future__ import annotations

import pytest

from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.schema import Config, ConfigError

DQN = {"env": "gunreal/Catch-v0", "runner": "device", "objective": "dqn"}


@pytest.mark.parametrize(
    "fields",
    [
        DQN | {"objective_args": {"steps": 20}},
        DQN | {"normalize_returns": False, "tasks": ("vr",)},
        DQN | {"normalize_returns": False, "tasks": ("mine:Task",)},  # its name may be vr
        {"runner": "device", "t_max": 2, "device_batches": 1},
        {"env": "ALE/Pong-v5", "emulator": "ale"},
        {"env": "ale_py:ALE/Pong-v5"},
        {"eval_minutes": 1, "eval_episodes": 5},
    ],
)
def test_these_do(fields, monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda name: True)  # as if JAX were
    check(Config(**fields))


def test_several_nodes_need_ray(monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda package: package != "ray")
    with pytest.raises(ConfigError, match=r'need Ray; install it with pip install "gunreal\[cluster\]"'):
        check(Config(runner="cluster", nodes=2))


def test_other_scripts_and_tuples_can_be_saved(tmp_path):
    config = Config(name="café 試", logdir="Läufe", env_args={"ключ": "😀", "size": (84, (1, 2))})
    check(config)
    save(config, tmp_path / "config.toml")
    assert Config(**load(tmp_path / "config.toml")) == config
