from __future__ import annotations

import pytest

from gunreal.cluster.rounds import Round, answers_per_turn, rate_factor
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config

EQUAL = [1.0] * 20  # seconds that answers took


@pytest.mark.parametrize(
    ("quorum", "seconds", "now", "gradients", "awaited", "over"),
    [
        (0.9, EQUAL, 1000.0, 0, 3, False),  # there is nothing to apply
        (0.9, EQUAL, 100.0, 9, 1, True),
        (0.9, EQUAL, 100.0, 8, 2, False),
        (0.9, EQUAL, 100.0, 2, 0, True),
        (0.9, EQUAL, 100.0, 1, 1, False),  # few nodes are all waited for
        (0.9, EQUAL + [50.0] * 5, 102.0, 1, 1, False),
        (0.9, EQUAL + [50.0] * 5, 102.05, 1, 1, True),  # the deadline is twice the median
        (0.9, EQUAL[:7], 1e6, 1, 1, False),  # there is none at first
        (1.0, EQUAL, 1e6, 9, 1, False),
        (1.0, EQUAL, 100.0, 10, 0, True),
        (0.5 / 1024, [], 100.0, 1, 1023, True),  # asynchronous gradients are rounds of their own
    ],
)
def test_the_quorum_or_the_deadline_ends_a_round(quorum, seconds, now, gradients, awaited, over):
    clock = Round(quorum)
    for value in seconds:
        clock.answered(0, value)
    clock.begin(100.0)
    assert clock.is_over(now, gradients, awaited) == over


def test_the_wait_for_new_rollouts_is_in_time():
    clock = Round(0.9, turn=9)
    for _ in range(30):
        for update in range(9):
            clock.answered(0, 1.0 if update == 0 else 0.1)
            clock.answered(1, 1.0 if update == 1 else 0.1)
            clock.answered(2, 1.0 if update == 1 else 0.1)
            clock.answered(3, 9.0)  # a slow node
    assert 2.0 <= clock.deadline() < 2.1


@pytest.mark.parametrize(
    ("rule", "step", "warmup", "factor"),
    [
        ("off", 0, 100, 1.0),
        ("linear", 0, 100, 1.0),
        ("linear", 50, 100, 8.5),
        ("linear", 100, 100, 16.0),
        ("sqrt", 500, 100, 4.0),
        ("linear", 0, 0, 16.0),
    ],
)
def test_the_learning_rate_of_16_nodes(rule, step, warmup, factor):
    assert rate_factor(rule, 16, step, warmup) == factor


@pytest.mark.parametrize(
    ("objective", "agents", "min_batch", "answers"),
    [
        ("a3c", 6, 20, 6),
        ("a3c", 6, 80, 2),  # a batch of 4 rollouts
        ("a3c", 2, 80, 1),  # each batch waits for two rollouts of each agent
        ("ppo", 24, 480, 9),
        ("ppo", 30, 480, 18),
    ],
)
def test_a_turn_has_a_rollout_of_each_agent(objective, agents, min_batch, answers):
    assert answers_per_turn(resolved(Config(objective=objective, agents=agents, min_batch=min_batch))) == answers
