"""Heads with steps of their own: probes, learning rates and clipping."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import CONFIG, Fit, gradients, make_batch, make_learner


@dataclasses.dataclass(frozen=True)
class Own(Fit):
    """Has large gradients."""

    weight: float = 100.0
    trains_torso: bool = True
    rate: float = 1.0
    max_grad_norm: float | None = None


def change(task, batch, config=CONFIG):
    """The change of each weight in the second update, after which Adam's steps depend on the gradients' sizes."""
    learner = make_learner(config, tasks=(task,) if task else ())
    learner.train(batch, 0.01)
    before = learner.get_state()
    metrics = learner.train({**batch, "base": {**batch["base"], "returns": 0.1 * batch["base"]["returns"]}}, 0.01)
    after = learner.get_state()
    return {name: after[name] - x for name, x in before.items() if name.startswith("weights/")}, metrics


def test_a_probe_changes_nothing_but_its_head():
    """Not even by the clipping of its gradient."""
    config = dataclasses.replace(CONFIG, max_grad_norm=0.1)
    batch = make_batch()
    wanted, _ = change(None, {"base": batch["base"]}, config)
    found, metrics = change(Own(trains_torso=False), batch, config)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)
    assert metrics["fit_grad_norm"] > 1 and all(np.any(found[name]) for name in found if name not in wanted)
    other, _ = change(Own(), batch, config)
    assert not all(np.allclose(other[name], array, atol=1e-5) for name, array in wanted.items())


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_the_rate_is_that_of_the_head(rate):
    batch = make_batch()
    wanted, slower = (make_learner(tasks=(task,)) for task in (Own(), Own(rate=rate)))
    before = wanted.get_state()
    for learner in (wanted, slower):
        learner.train(batch, 0.01)
    one, two = wanted.get_state(), slower.get_state()
    for name, x in before.items():
        if name.startswith("weights/"):
            factor = rate if name.startswith("weights/fit") else 1.0
            np.testing.assert_allclose(two[name] - x, factor * (one[name] - x), atol=1e-7, err_msg=name)


def test_the_head_is_clipped_apart():
    """Adam's first moments after its first update are a tenth of the gradients."""
    batch = make_batch()
    config = dataclasses.replace(CONFIG, max_grad_norm=0.5)
    learner = make_learner(config, tasks=(Own(max_grad_norm=2.0),))
    metrics = learner.train(batch, 0.01)
    found = gradients(learner.get_state())
    norm = {
        own: np.sqrt(sum((x**2).sum() for name, x in found.items() if name.startswith("weights/fit") is own))
        for own in (True, False)
    }
    assert metrics["fit_grad_norm"] > 2 and metrics["grad_norm"] > 0.5
    assert norm == {True: pytest.approx(2, rel=1e-3), False: pytest.approx(0.5, rel=1e-3)}
