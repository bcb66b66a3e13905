"""Two nodes with a batch of b each take the step of one machine with a batch of 2b, for every optimizer and option."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import BACKEND, CONFIG, make_batch, make_learner

from gunreal.cluster.flat import Flat, bounds
from gunreal.cluster.moments import Limits, RunningMoments, within
from gunreal.cluster.reducer import Reducer, Shard
from gunreal.config.version import VERSION
from gunreal.learning import devices

OPTIONS = {
    "adam": {"max_grad_norm": 0.05},
    "rmsprop": {"optimizer": "rmsprop", "epsilon": 0.1, "reduction": "sum", "normalize_observations": "channel"},
    "the paper's adam": {"beta1": 0.8, "beta2": 0.75, "normalize_observations": "off", "normalize_returns": False},
}


@pytest.fixture(scope="module", autouse=True)
def selected():
    devices.select(BACKEND)


def batches(count, seed):
    """Two batches of `count` rollouts, and the batch of both."""
    parts = [make_batch(count, seed=seed), make_batch(count, seed=seed + 100)]
    for part in parts:
        part["base"]["mask"][...] = 1  # a mean over nodes weighs them equally
    rows = count * 4  # of the base rollouts, before those of the task
    observations = [part["observations"] for part in parts]
    whole = {
        name: {key: np.concatenate([part[name][key] for part in parts]) for key in parts[0][name]}
        for name in ("base", "fit")
    }
    whole["observations"] = np.concatenate([x[:rows] for x in observations] + [x[rows:] for x in observations])
    return parts, whole


class TwoNodes:
    """What the coordinator does in a round, with reducers in this process."""

    def __init__(self, config, learner, reducers):
        self.config, self.learner = config, learner  # both nodes have the same weights
        state = learner.get_state()
        self.names = [name for name in state if not name.startswith(("optimizer/", "version"))]
        self.weights = Flat({name: state[name].shape for name in self.names if name.startswith("weights/")})
        self.statistics = Flat({name: state[name].shape for name in self.names if name.startswith("statistics/")})
        limits = {name: Limits(s.least, s.most) for name, s in learner.network.statistics.items()}
        vector = self.statistics.join(state[name] for name in self.statistics.places)
        self.moments = RunningMoments(limits, self.statistics, self.weights, vector)
        slots = [np.array(state[name]) for name in state if name.startswith("optimizer/")][1:]
        flat = self.weights.join(state[name] for name in self.weights.places)
        self.parts = bounds(self.weights.size, reducers)
        averages = self.weights.slots(slots)
        shards = [Shard(flat[part], [average[part] for average in averages], 0) for part in self.parts]
        self.reducers = [Reducer(VERSION, dataclasses.asdict(config), shard) for shard in shards]

    def round(self, batches, rate, version):
        gradients = [self.learner.gradient(batch) for batch in batches]
        vectors = [self.weights.join(gradient.values) for gradient in gradients]
        reducers = list(zip(self.reducers, self.parts, strict=True))
        squares = [reducer.gather(0, *(v[part] for v in vectors)) for reducer, part in reducers]
        found = [self.statistics.join(x for m in g.moments.values() for x in m) for g in gradients]
        rescalings = self.moments.absorb(found)
        slices = [reducer.apply(rate, within(rescalings, part), *squares)[1] for reducer, part in reducers]
        weights = np.concatenate(slices)
        arrays = [*self.weights.split(weights).values(), *self.statistics.split(self.moments.vector).values()]
        self.learner.assign(arrays, version)
        return float(np.sqrt(sum(squares)))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_two_nodes_are_one_with_twice_the_batch(options):
    config = dataclasses.replace(CONFIG, **options)
    one = make_learner(config)
    two = TwoNodes(config, make_learner(config), reducers=3)
    for update in range(3):
        parts, whole = batches(3, seed=update)
        expected = one.train(whole, 1e-3)["grad_norm"]
        assert two.round(parts, 1e-3, update + 1) == pytest.approx(expected, rel=1e-4)
    wanted, found = one.get_state(), two.learner.get_state()
    assert found["version"] == wanted["version"] == 3
    for name in two.names:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)
    averages = two.weights.slots([wanted[name] for name in wanted if name.startswith("optimizer/")][1:])
    for part, reducer in zip(two.parts, two.reducers, strict=True):
        shard = reducer.shard()
        assert shard.updates == 3
        for own, average in zip(shard.slots, averages, strict=True):
            np.testing.assert_allclose(own, average[part], rtol=1e-3, atol=1e-5)
