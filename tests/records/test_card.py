"""The command of a model card; `tests/test_hub.py` reads a whole card."""

from __future__ import annotations

import shlex

import pytest

from gunreal.config.flags import from_flags
from gunreal.config.schema import Config
from gunreal.records.card import command


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(
            env="gunreal/Catch-v0", tasks=("pc", "vr"), task={"pc": {"weight": 0.5, "cell": 8}, "vr": {"weight": 2.0}}
        ),
        Config(env="a.b:C", env_args={"text": "a b, c", "flag": True, "sizes": [1, 2]}, serial=True),
        Config(network="impala", network_args={"width": 2}),
        Config(normalize_returns=False, reward_clip=-1.0, memory_limit=2**30, learning_rate=1e-4, replay_size=99),
    ],
)
def test_the_command_gives_the_configuration(config):
    words = shlex.split(command(config))
    assert words[:2] == ["gunreal", "train"]
    assert from_flags(words[1:])[0] == config


def test_what_concerns_the_machine_is_left_out():
    assert command(Config(logdir="/home/me/runs", name="mine", track="wandb", seed=2)) == "gunreal train --seed 2"


def test_tables_in_tables_need_the_file():
    assert command(Config(env_args={"settings": {"a": "1", "b": "2"}})).startswith("gunreal train --config config.toml")
