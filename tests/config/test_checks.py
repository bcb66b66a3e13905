"""Rules about values that are only invalid, or only without effect, together with others."""

from __future__ import annotations

import pytest

from gunreal.config.checks import check
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
def test_these_do(fields):
    check(Config(**fields))
