"""Gates on the gradients of tasks."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from learners import CONFIG, Fit, make_batch, make_learner

from gunreal.config.schema import ConfigError


@dataclasses.dataclass(frozen=True)
class Other(Fit):
    """Another task, without a gate."""

    name: ClassVar[str] = "other"
    bootstrap: ClassVar[None] = None


@dataclasses.dataclass(frozen=True)
class Gated(Fit):
    factor: float = 1.0

    def gate(self, cosine, norm, base_norm):
        return self.factor * (1 + 0 * cosine)


@dataclasses.dataclass(frozen=True)
class Clipped(Fit):
    """Its gradient is not larger than a tenth of that of the actor-critic."""

    def gate(self, cosine, norm, base_norm):
        from keras import ops

        return ops.minimum(1.0, 0.1 * base_norm / norm)


def both(batch):
    return {**batch, "other": batch["fit"]}


def gradient(learner, batch):
    found = learner.gradient(batch)
    names = learner.network.names
    return {name: np.asarray(x) for name, x in zip(names, found.values, strict=True)}, found.metrics


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_an_open_gate_changes_nothing_and_a_closed_one_takes_the_task_from_the_torso(reduction):
    config, batch = dataclasses.replace(CONFIG, reduction=reduction), both(make_batch())
    plain, metrics = gradient(make_learner(config, tasks=(Fit(), Other())), batch)
    opened, own = gradient(make_learner(config, tasks=(Gated(), Other())), batch)
    closed, _ = gradient(make_learner(config, tasks=(Gated(factor=0.0), Other())), batch)
    none, _ = gradient(make_learner(config, tasks=(Fit(weight=0.0), Other())), batch)
    for name, array in plain.items():
        np.testing.assert_allclose(opened[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
        wanted = none if name.startswith("torso/") else plain
        np.testing.assert_allclose(closed[name], wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert own.keys() - metrics.keys() == {"fit_cosine", "fit_norm", "fit_gate"}
    torso = [name for name in plain if name.startswith("torso/")]
    task = np.concatenate([(plain[name] - none[name]).ravel() for name in torso])
    base, _ = gradient(make_learner(config, tasks=()), {"base": batch["base"]})
    base = np.concatenate([base[name].ravel() for name in torso])
    assert own["fit_norm"] == pytest.approx(np.linalg.norm(task), rel=1e-2)
    assert own["fit_cosine"] == pytest.approx(task @ base / np.linalg.norm(task) / np.linalg.norm(base), abs=1e-2)


def test_a_gate_that_depends_on_the_norms():
    _, metrics = gradient(make_learner(tasks=(Clipped(),)), make_batch())
    alone = make_batch()
    _, base = gradient(make_learner(tasks=(Clipped(weight=0.001),)), alone)
    assert metrics["fit_gate"] < 1 == base["fit_gate"]
    assert metrics["fit_norm"] == pytest.approx(250 * base["fit_norm"], rel=1e-2)


def test_a_batch_without_the_task_has_no_gate():
    base = {"base": make_batch()["base"]}
    assert "fit_gate" not in make_learner(tasks=(Gated(),)).gradient(base).metrics


def test_a_gate_that_is_no_scalar():
    class Rows(Fit):
        def gate(self, cosine, norm, base_norm):
            return np.ones(3, np.float32)

    with pytest.raises(ConfigError, match=r"^task 'fit': gate\(\) returns shape \(3,\); return a scalar"):
        make_learner(tasks=(Rows(),), new=True).gradient(make_batch())
