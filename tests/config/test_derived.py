from __future__ import annotations

import pytest

from gunreal.config.checks import check
from gunreal.config.derived import (
    AUTOMATIC,
    MINIBATCH,
    SMALL_BATCH,
    anneal,
    batch_steps,
    device_groups,
    entropy_weight,
    first_rate,
    minibatch_count,
    per_process,
    rates,
    rollouts_per_batch,
    shown,
    steps_without_update,
)
from gunreal.config.schema import FIELDS, Config, ConfigError


@pytest.mark.parametrize(("algorithm", "min_batch", "batch"), [("ppo", 0, 960), ("a3c", 0, 80), ("ppo", 40, 40)])
def test_the_batch_suits_the_algorithm(algorithm, min_batch, batch):
    assert batch_steps(Config(algorithm=algorithm, min_batch=min_batch)) == batch


@pytest.mark.parametrize(
    ("flags", "rate"),
    [
        ({"algorithm": "ppo"}, 8e-4),
        ({"algorithm": "a3c"}, 5e-4),
        ({"algorithm": "ppo", "runner": "device"}, 5e-4),
        ({"algorithm": "ppo", "learning_rate": 0.1}, 0.1),
    ],
)
def test_the_learning_rate_suits_the_algorithm(flags, rate):
    assert first_rate(Config(**flags)) == rate


@pytest.mark.parametrize(
    ("algorithm", "entropy", "weight"), [("ppo", -1, 0.02), ("a3c", -1, 0.01), ("ppo", 0, 0), ("a3c", 0.003, 0.003)]
)
def test_the_entropy_weight_suits_the_algorithm(algorithm, entropy, weight):
    assert entropy_weight(Config(algorithm=algorithm, entropy=entropy)) == weight


def test_anneal():
    assert [anneal(1.0, 0.2, share) for share in (0, 0.25, 0.5, 1, 1.5)] == pytest.approx([1, 0.8, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    ("flags", "halfway"),
    [
        ({"algorithm": "ppo"}, (4e-4, 0.02)),
        ({"algorithm": "a3c"}, (2.5e-4, 0.01)),
        ({"algorithm": "ppo", "learning_rate_end": 6e-4, "entropy_end": 0.01}, (7e-4, 0.015)),
        ({"algorithm": "a3c", "entropy": 0.1, "entropy_end": 0.0}, (2.5e-4, 0.05)),
    ],
)
def test_rates_change_linearly(flags, halfway):
    config = Config(**flags, steps=1000)
    assert rates(config, 0) == (first_rate(config), entropy_weight(config), 0.0)
    assert rates(config, 500) == pytest.approx((*halfway, 0.5))
    assert rates(config, 1100).progress == 1.0


@pytest.mark.parametrize(
    ("agents", "groups"),
    [(1200, 20), (1024, 4), (24, 4), (20, 5), (8, 2), (4, 1), (2, 1), (23, 1)],  # of at least 80 steps, 20 each
)
def test_device_runs_have_small_batches_except_with_ppo(agents, groups):
    for algorithm in ("a3c", "dqn"):
        assert device_groups(Config(runner="device", algorithm=algorithm, agents=agents)) == groups
    assert device_groups(Config(runner="device", agents=agents)) == 1
    assert device_groups(Config(runner="device", agents=agents, algorithm="a3c", device_batches=2)) == 2


def test_the_groups_follow_the_batch_that_the_help_names():
    """Device runs refuse `min_batch`, because it has no effect there."""
    assert f"batches of at least {SMALL_BATCH} agent steps" in FIELDS["device_batches"].metadata["help"]
    assert device_groups(Config(runner="device", algorithm="a3c", agents=24, min_batch=480)) == 4


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ({"min_batch": 9600}, 3),
        ({"runner": "device", "agents": 24}, 3),
        ({"runner": "device", "agents": 256}, 16),
        ({"runner": "device", "agents": 256, "device_batches": 4}, 4),
        ({"runner": "device", "agents": 1024, "t_max": 5}, 16),
        ({"runner": "device", "agents": 256, "ppo_minibatches": 2}, 2),
        ({"ppo_minibatches": 5}, 5),
    ],
)
def test_large_batches_of_device_runs_have_more_minibatches(flags, count):
    assert minibatch_count(Config(**flags)) == count
    assert f"as many as can have {MINIBATCH} agent steps" in FIELDS["ppo_minibatches"].metadata["help"]


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
        ({}, 12 * (4 * 20 + 1)),  # 48 rollouts: 4 of each agent of one process
        ({"serial": True}, 24 * (2 * 20 + 1)),
        ({"steps": 5}, 12 * 21),
        ({"steps": 5, "agents": 3, "t_max": 4}, 3 * 5),
    ],
)
def test_steps_without_update(fields, steps):
    assert steps_without_update(Config(**fields)) == steps


def test_a_message_does_not_show_what_stands_for_another_value():
    for name, field in FIELDS.items():
        meaning = f"{field.default:g} means" if isinstance(field.default, int | float) else "nothing"
        stands = meaning in field.metadata["help"] and f"{meaning} none" not in field.metadata["help"]
        assert (name in AUTOMATIC) == stands, name
    assert [shown("entropy", value) for value in (-1.0, 0.01)] == ["automatic", "0.01"]
    assert shown("rms_initial", 0.0) == "0.0" and shown("optimizer", "adam") == "'adam'"
    with pytest.raises(ConfigError, match=r"learning_rate is -1.0, but must be at least 0 \(default automatic\)"):
        check(Config(learning_rate=-1))
