"""The coordinator: runs with nodes whose gradients are known. test_updates.py has reducers that fail."""

from __future__ import annotations

import numpy as np
import pytest
from ray_standin import Engine

from gunreal.cluster import coordinator
from gunreal.cluster.coordinator import Coordinator
from gunreal.cluster.model import Rules
from gunreal.cluster.node import Answer, Description
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.records import checkpoint
from gunreal.records.metrics import RunMetrics

WEIGHTS = {"weights/a/kernel": np.zeros(3, np.float32), "weights/vr/0/kernel": np.zeros(2, np.float32)}
STATE = {**WEIGHTS, "optimizer/updates": np.array(0), "version": np.array(0)}
STATE |= {name.replace("weights", "optimizer/square"): zeros for name, zeros in WEIGHTS.items()}
STEPS = 80  # of each gradient


class Known:
    """A node whose gradients are all 1, and which notes what it is asked: version, rates and weights."""

    asked: list[tuple] = []  # noqa: RUF012  of all nodes

    def __init__(self, *_):
        self.number = len(Known.asked)

    def start(self, told):
        return Description(STATE, Rules({}, {}, [], {}), 1)

    def gradient(self, version, now, untrained, *parts):
        Known.asked.append((id(self), version, now, np.concatenate(parts, axis=1)[0]))
        metrics = RunMetrics()
        metrics.acted(STEPS)
        metrics.trained(STEPS, np.zeros(1), {})
        slices = [np.ones_like(part[0]) for part in parts]
        return Answer(True, {}, STEPS, 0.1, 0, metrics.take()), *slices

    def gauges(self):
        return {"agents": 2}, {}

    def stop(self):
        pass


@pytest.fixture
def make(monkeypatch):
    """Makes runs whose nodes are `Known`."""
    Known.asked = []
    monkeypatch.setattr(coordinator, "Engine", lambda config: Engine("a", "b"))
    monkeypatch.setattr(Coordinator, "node", Known)

    def made(resumed=None, **options):
        config = resolved(Config(**{"runner": "cluster", "nodes": 2, "reducers": 1, "optimizer": "rmsprop", **options}))
        return Coordinator(config, Spec((4,), 1, "float32", 2), (), resumed)

    return made


def test_the_rates_are_those_of_the_whole_run(make):
    """A node does not know how many agent steps the others have taken."""
    rates = {"learning_rate": 0.1, "learning_rate_end": 0.0, "entropy": 0.2, "entropy_end": 0.0}
    found = make(steps=STEPS * 40, **rates)
    found.run(lambda: None)
    progress = sorted({now.progress for _, _, now, _ in Known.asked})
    assert progress[0] == 0 and max(progress) > 0.8 and len(progress) > 5
    for _, _, now, _ in Known.asked:
        assert now[:2] == pytest.approx((0.1 * (1 - now.progress), 0.2 * (1 - now.progress)))


def test_the_learning_rate_grows_with_the_nodes(make):
    found, seen = make(nodes=4, steps=10**9, learning_rate=0.1, rate_scaling="linear"), []

    def tick():
        seen.append(found.snapshot())
        if seen[-1]["updates"] > 3:
            found.stop("steps")

    found.run(tick)
    assert seen[-1]["learning_rate"] == pytest.approx(4 * 0.1, rel=1e-3)


@pytest.mark.parametrize("quorum", [0.9, 1.0])
def test_a_node_computes_one_gradient_for_a_round(make, quorum):
    """And all nodes do so with the same weights. One that does not answer any more is waited for if all are needed."""
    found, ticks = make(steps=STEPS * 10**6, quorum=quorum), []

    def tick():
        ticks.append(len(Known.asked))
        if len(ticks) == 3:
            next(actor for _, actor in found._engine.actors if isinstance(actor.object, Known)).hangs = True
        if len(ticks) == 6:
            found.stop("steps")

    found.run(tick)
    asked = [(node, version) for node, version, _, _ in Known.asked]
    assert len(set(asked)) == len(asked) >= 20
    weights = {}
    for _, version, _, whole in Known.asked:
        np.testing.assert_array_equal(weights.setdefault(version, whole), whole)
    assert (ticks[-1] == ticks[-2]) == (quorum == 1.0) and found.snapshot()["updates"] == max(weights)


def test_a_run_starts_with_the_weights_of_another_one(make, tmp_path, capsys):
    extra = {"config": {"objective": "ppo", "objective_args": {}}}
    path = checkpoint.save(tmp_path, 7, {"weights/a/kernel": np.ones(3, np.float32), "version": np.array(7)}, extra)
    make(init=str(path), steps=STEPS).run(lambda: None)
    _, version, _, whole = Known.asked[0]
    assert whole.tolist() == [1, 1, 1, 0, 0] and version == 0
    assert f"gunreal: starts with the weights of {path}, except for vr/0\n" in capsys.readouterr().err


def test_a_checkpoint_of_another_network_ends_the_run(make, tmp_path):
    """No machine can take part."""
    extra, state = {"metrics": RunMetrics().state(), "node_serial": 2}, STATE | {"weights/a/kernel": np.zeros(4)}
    with pytest.raises(ConfigError, match=r"weights/a/kernel has shape \(4,\)"):
        make(checkpoint.Checkpoint(state, extra, {}, tmp_path, 0, None)).run(lambda: None)
    assert not Known.asked
