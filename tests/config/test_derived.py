from __future__ import annotations

import pytest

from gunreal.config.checks import check
from gunreal.config.derived import per_process, rates, rollouts_per_batch, steps_without_update
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config


@pytest.mark.parametrize(
    ("flags", "halfway"),
    [
        ({"learning_rate": 8e-4, "entropy": 0.02}, (4e-4, 0.02)),
        ({"learning_rate": 8e-4, "learning_rate_end": 6e-4, "entropy": 0.02, "entropy_end": 0.01}, (7e-4, 0.015)),
        ({"learning_rate": 5e-4, "entropy": 0.1, "entropy_end": 0.0}, (2.5e-4, 0.05)),
    ],
)
def test_rates_change_linearly(flags, halfway):
    config = resolved(Config(**flags, steps=1000))
    assert rates(config, 0) == (config.learning_rate, config.entropy, 0.0)
    assert rates(config, 500) == pytest.approx((*halfway, 0.5))
    assert rates(config, 1100) == rates(config, 1000) and rates(config, 1000).progress == 1.0


@pytest.mark.parametrize(
    ("agents", "most", "share"),
    [(1, 16, 1), (3, 16, 3), (16, 16, 16), (20, 16, 10), (32, 16, 16), (33, 16, 11), (7, 1, 1)],
)
def test_agents_are_shared_evenly(agents, most, share):
    config = Config(agents=agents, agents_per_process=most)
    check(config)
    assert per_process(config) == share


@pytest.mark.parametrize(("min_batch", "t_max", "rollouts"), [(80, 20, 4), (81, 20, 5), (1, 20, 1), (20, 20, 1)])
def test_rollouts_per_batch(min_batch, t_max, rollouts):
    assert rollouts_per_batch(Config(min_batch=min_batch, t_max=t_max)) == rollouts


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"agents": 24, "min_batch": 960}, 12 * (4 * 20 + 1)),  # 48 rollouts: 4 of each agent of one process
        ({"agents": 24, "min_batch": 960, "runner": "serial"}, 24 * (2 * 20 + 1)),
        ({"agents": 24, "min_batch": 960, "steps": 5}, 12 * 21),
        ({"min_batch": 960, "steps": 5, "agents": 3, "t_max": 4}, 3 * 5),
    ],
)
def test_steps_without_update(fields, steps):
    assert steps_without_update(Config(**fields)) == steps
