from __future__ import annotations

import math

import pytest

from gunreal.cluster.rounds import Round, answers_per_turn, rate_factor
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config


def started(quorum: float, seconds: list[float]) -> Round:
    clock = Round(quorum)
    for value in seconds:
        clock.answered(0, value)
    clock.begin(100.0)
    return clock


def test_nothing_to_apply_is_no_round():
    assert not started(0.9, [1.0] * 20).is_over(1000.0, 0, 3)


def test_the_quorum_ends_a_round():
    clock = started(0.9, [1.0] * 20)
    assert clock.is_over(100.0, 9, 1) and not clock.is_over(100.0, 8, 2)
    assert clock.is_over(100.0, 2, 0) and not clock.is_over(100.0, 1, 1)  # few nodes are all waited for


def test_the_deadline_is_twice_the_median():
    clock = started(0.9, [0.2] * 20 + [5.0] * 5)
    assert 0.4 <= clock.deadline() < 0.45
    assert not clock.is_over(100.3, 1, 1) and clock.is_over(100.45, 1, 1)


def test_the_wait_for_new_rollouts_is_in_time():
    clock = Round(0.9, turn=9)
    for _ in range(30):
        for update in range(9):
            clock.answered(0, 1.0 if update == 0 else 0.1)
            clock.answered(1, 1.0 if update == 1 else 0.1)
            clock.answered(2, 1.0 if update == 1 else 0.1)
            clock.answered(3, 9.0)  # a slow node
    assert 2.0 <= clock.deadline() < 2.1


def test_a_third_rollout_that_comes_later_is_in_time():
    """Two groups of three agents deliver their rollouts, and each batch is one of them."""
    clock = Round(0.9, turn=6)
    for _ in range(20):
        for seconds in (0.3, 0.02, 0.02):
            clock.answered(0, seconds)
    assert 0.6 <= clock.deadline() < 0.65


def test_there_is_no_deadline_at_first():
    assert started(0.9, [0.2] * 7).deadline() == math.inf


def test_a_quorum_of_one_waits_for_all():
    clock = started(1.0, [0.2] * 20)
    assert not clock.is_over(1e6, 9, 1) and clock.is_over(100.0, 10, 0)


def test_asynchronous_gradients_are_rounds_of_their_own():
    assert started(0.5 / 1024, []).is_over(100.0, 1, 1023)


@pytest.mark.parametrize(
    ("rule", "step", "factor"),
    [("off", 0, 1.0), ("linear", 0, 1.0), ("linear", 50, 8.5), ("linear", 100, 16.0), ("sqrt", 500, 4.0)],
)
def test_the_learning_rate_of_16_nodes(rule, step, factor):
    assert rate_factor(rule, 16, step, warmup=100) == factor


def test_without_warm_up_the_factor_is_there_at_once():
    assert rate_factor("linear", 4, 0, warmup=0) == 4.0


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
