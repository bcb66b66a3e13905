from __future__ import annotations

import pytest
from experiments import ba3c_model
from experiments.ba3c import Condition
from experiments.ba3c_model import Costs, Stragglers

COSTS = Costs(0.01, 0.002, 0.001, 0.8)
FREE = Costs(0.0, 0.0, 0.0, 1.0)


def seconds(*args, costs=FREE, quorum=1.0, stragglers=ba3c_model.NO_STRAGGLERS, **fields):
    return ba3c_model.simulate(Condition(*args, **fields), costs, stragglers, quorum).seconds


def test_a_round_takes_as_long_as_its_slowest_gradient():
    assert seconds(1) == pytest.approx(0.2, rel=0.03)
    assert 0.2 < seconds(2) < seconds(8) < 0.3
    assert seconds(1, costs=COSTS) == pytest.approx(seconds(1) + 0.012)


def test_transfers_share_the_link_of_the_reducer():
    """1 MB of weights at 8 Mbit/s are a second for each gradient and each copy of the weights."""
    slow = {"weights": 250_000, "compute": 1e-6}
    assert seconds(5, 8, **slow) == pytest.approx(4.2 + 4, rel=1e-3)  # a first gradient, and 4 others for 4/5 of a link
    assert seconds(5, 8, 4, **slow) == pytest.approx(1.8 + 1, rel=1e-3)
    assert seconds(5, 8, 1, "bfloat16", **slow) == pytest.approx(2.1 + 4, rel=1e-3)


def test_stragglers_cost_less_with_a_quorum():
    rare = Stragglers(0.01, 5.0)
    assert seconds(64, stragglers=rare) > 0.5
    assert seconds(64, stragglers=rare, quorum=0.9) < 0.26
    assert seconds(8, quorum=0.9, slow=5.0) < 0.26


def test_the_fit_finds_the_costs_of_simulated_rounds():
    conditions = [Condition(n, mbit) for n in (1, 2, 4, 8) for mbit in (0, 500)] + [Condition(8, 500, 4)]
    rows = [
        {"condition": condition._asdict(), "round_ms": 1000 * ba3c_model.simulate(condition, COSTS).seconds}
        for condition in conditions
    ]
    assert ba3c_model.fit(rows) == pytest.approx(COSTS, rel=1e-2)
