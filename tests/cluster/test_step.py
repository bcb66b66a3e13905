"""Two nodes with a batch of b each take the step of one machine with a batch of 2b, for every optimizer and option."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import BACKEND, CONFIG, make_batch, make_learner

from gunreal.cluster.flat import bounds
from gunreal.cluster.model import Model
from gunreal.cluster.moments import Limits
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
    whole = {
        name: {key: np.concatenate([part[name][key] for part in parts]) for key in parts[0][name]}
        for name in ("base", "fit")
    }
    return parts, whole


def flat(arrays):
    return np.concatenate([np.zeros(0, np.float32), *(np.ravel(array) for array in arrays)])


class TwoNodes:
    """What the coordinator does in a round, with reducers in this process."""

    def __init__(self, config, learner, reducers):
        self.learner = learner  # both nodes have the same weights
        limits = {name: Limits(s.least, s.most) for name, s in learner.network.statistics.items()}
        self.model = Model(learner.get_state(), limits)
        whole, fields = self.model.shard(), dataclasses.asdict(config)
        self.parts = bounds(self.model.size, reducers)
        shards = [Shard(whole.weights[part], [x[part] for x in whole.averages], 0) for part in self.parts]
        self.reducers = [Reducer(VERSION, fields, shard) for shard in shards]

    def round(self, batches, rate):
        gradients = [self.learner.gradient(batch) for batch in batches]
        vectors = [flat(gradient.values) for gradient in gradients]
        reducers = list(zip(self.reducers, self.parts, strict=True))
        squares = [reducer.gather(0, *(v[part] for v in vectors)) for reducer, part in reducers]
        found = [flat(x for moments in gradient.moments.values() for x in moments) for gradient in gradients]
        rescalings = self.model.moments.absorb(found)
        for reducer, part in reducers:
            reducer.apply(rate, [rescaling.within(part) for rescaling in rescalings], *squares)
        self.model.version += 1
        self.learner.set_state(self.state())
        return float(np.sqrt(sum(squares)))

    def state(self):
        weights, averages, updates = zip(*(reducer.shard() for reducer in self.reducers), strict=True)
        assert set(updates) == {self.model.version}
        averages = [np.concatenate(parts) for parts in zip(*averages, strict=True)]
        return self.model.state(Shard(np.concatenate(weights), averages, updates[0]))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_two_nodes_are_one_with_twice_the_batch(options):
    config = dataclasses.replace(CONFIG, **options)
    one = make_learner(config)
    two = TwoNodes(config, make_learner(config), reducers=3)
    for update in range(3):
        parts, whole = batches(3, seed=update)
        expected = one.train(whole, 1e-3)["grad_norm"]
        assert two.round(parts, 1e-3) == pytest.approx(expected, rel=1e-4)
    wanted, found = one.get_state(), two.state()
    assert found.keys() == wanted.keys() and found["version"] == 3
    weights = np.concatenate([reducer.shard().weights for reducer in two.reducers])
    assert two.model.sha256(weights) == two.learner.weights_sha256()
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype
        rtol = 1e-3 if name.startswith("optimizer/") else 1e-5
        np.testing.assert_allclose(array, wanted[name], rtol=rtol, atol=1e-5, err_msg=name)
