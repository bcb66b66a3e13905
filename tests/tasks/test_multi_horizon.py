import numpy as np
import pytest
from rings import VECTOR, episodes, make_segment, targets

from gunreal.tasks.multi_horizon import MultiHorizon
from gunreal.tasks.value_replay import ValueReplay

TASK = MultiHorizon(discounts=(0.0, 0.5, 0.9))


def test_returns_of_every_discount_are_those_of_value_replay():
    rewards = np.random.default_rng(0).normal(size=12)
    segment = make_segment(VECTOR, episodes("--T ---t ---"), rewards)
    for sequence in ((0, 4), (4, 3), (8, 2)):
        returns = targets(TASK, segment, sequence, [1, 2, 3])["returns"]
        assert returns.shape == (4, 3) and returns.dtype == np.float32
        for place, discount in enumerate(TASK.discounts):
            spec = VECTOR._replace(discount=discount)
            alone = make_segment(spec, episodes("--T ---t ---"), rewards)
            wanted = targets(ValueReplay(), alone, sequence, place + 1)["returns"]
            np.testing.assert_allclose(returns[:, place], wanted, rtol=1e-6)


def test_loss_against_loops():
    rng = np.random.default_rng(0)
    returns = np.float32(rng.normal(size=(3, 4, 3)) * [5, 0.001, 0.001] + [0, 0, 1000])  # two hardly differ
    values, mask = np.float32(rng.normal(size=(3, 4, 3))), np.float32(rng.random((3, 4)) < 0.7)
    steps = mask == 1
    deviation = np.maximum(returns[steps].std(axis=0), 0.1 * np.maximum(returns[steps].mean(axis=0), 1))
    wanted = np.mean(0.5 * ((returns[steps] - values[steps]) / deviation) ** 2)
    assert float(TASK.loss(values, {"returns": returns, "mask": mask})) == pytest.approx(wanted, rel=1e-4)
    assert float(TASK.loss(values, {"returns": returns, "mask": 0 * mask})) == 0


def test_bootstrap_has_one_value_per_discount():
    assert TASK.bootstrap(np.arange(6).reshape(2, 1, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
