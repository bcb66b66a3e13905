"""Two nodes with a batch of b each take the step of one machine with a batch of 2b, for every optimizer and option.

Their exchanges pass on the gradients of a real learner, also of one whose task asks for all that a step can have.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import learners
import numpy as np
import pytest
from learners import CONFIG, Fit, make_batch, make_learner

from gunreal.cluster.compression import unpack
from gunreal.cluster.exchange import Exchange, Left
from gunreal.cluster.flat import bounds
from gunreal.cluster.model import Model, Rows, Rules
from gunreal.cluster.reducer import Reducer, Shard
from gunreal.config.derived import Rates
from gunreal.config.version import VERSION
from gunreal.records.checkpoint import weights_sha256

shared = learners.shared  # pytest finds fixtures among a module's names
OPTIONS = {
    "adam": {"max_grad_norm": 0.05},
    "rmsprop": {"optimizer": "rmsprop", "epsilon": 0.1, "reduction": "sum", "normalize_observations": "channel"},
    "the paper's adam": {"beta1": 0.8, "beta2": 0.75, "normalize_observations": "off", "normalize_returns": False},
}


@dataclasses.dataclass(frozen=True)
class Asking(Fit):
    """Fits averaged features too. Its state has a mean over steps, a count of updates and what no update changes."""

    average = 0.2
    rate = 0.5
    max_grad_norm = 1e6  # more than any gradient has, because nodes clip theirs before the mean
    bonus_discount = 0.9

    def state(self, spec):
        return {"mean": np.zeros(2, np.float32), "updates": np.zeros((), np.int32), "fixed": np.ones(3, np.float32)}

    def bonus(self, outputs, observations, state):
        return outputs[:, 0, 0]

    def head(self, spec):
        from keras import layers

        class Head(layers.Layer):
            def __init__(self):
                super().__init__()
                self.dense = layers.Dense(2)

            def build(self, shape):
                self.dense.build(shape)

            def call(self, x, batch=None, net=None):
                if net is None:
                    return self.dense(x)
                return self.dense(x) - net.average.head(net.average.features(net.observations)) - net.state["mean"]

        return Head()

    def loss(self, outputs, batch):
        from keras import ops

        known, mean = batch["state"], ops.mean(batch["target"], axis=(0, 1))
        new = {"mean": known["mean"] + 0.1 * (mean - known["mean"]), "updates": known["updates"] + 1}
        return super().loss(outputs, batch), {}, new


def batches(count, seed):
    """Two batches of `count` rollouts, and the batch of both."""
    parts = [make_batch(count, seed=seed), make_batch(count, seed=seed + 100)]
    for part in parts:
        part["base"]["mask"][...] = 1  # a mean over nodes weighs them equally
        part["base"]["bonus_returns"] = 3 * part["base"]["returns"] + 1
    whole = {
        name: {key: np.concatenate([part[name][key] for part in parts]) for key in parts[0][name]}
        for name in ("base", "fit")
    }
    return parts, whole


class TwoNodes:
    """What the coordinator and the nodes do in a round, with reducers in this process."""

    def __init__(self, config, learner, reducers):
        self.config, self.learner = config, learner  # of both nodes
        self.rules = Rules.of(learner)
        self.model = Model(learner.get_state(), self.rules)
        whole, own, fields = self.model.shard(), self.model.own, dataclasses.asdict(config)
        self.parts = bounds(self.model.size, reducers)
        self.reducers = [Reducer(VERSION, fields, whole.within(part), own.within(part)) for part in self.parts]

    def exchange(self, dtype="float32"):
        return Exchange(self.learner, Rows(self.learner.get_state(), self.rules.averages), dtype)

    def contribution(self, exchange, batch):
        """What a node answers while its trainer works, whose own rates do not count."""
        weights = [reducer.shard().weights for reducer in self.reducers]
        now = Rates(1e-3, self.config.entropy, 0.0)
        exchange.assign(weights, self.model.untrained.arrays, self.model.version, now)
        with ThreadPoolExecutor() as threads:
            trained = threads.submit(exchange.train, batch, 9.0, 9.0, 9.0)
            found = exchange.ask()
        assert trained.result()["version"] == exchange.version == self.model.version
        assert found.size == batch["base"]["mask"].size and found.seconds >= 0
        return found

    def round(self, batches, rate):
        found = [self.contribution(self.exchange(), batch) for batch in batches]
        reducers = list(zip(self.reducers, self.parts, strict=True))
        squares = [reducer.gather(0, *(each.gradient[part] for each in found)) for reducer, part in reducers]
        rescalings = self.model.untrained.absorb([each.untrained for each in found])
        for reducer, part in reducers:
            reducer.apply(rate, [rescaling.within(part) for rescaling in rescalings], *squares)
        self.model.version += 1
        return float(np.sqrt(sum(squares)))

    def state(self):
        weights, averages, updates = zip(*(reducer.shard() for reducer in self.reducers), strict=True)
        assert set(updates) == {self.model.version}
        averages = [np.concatenate(parts) for parts in zip(*averages, strict=True)]
        return self.model.state(Shard(np.concatenate(weights, axis=1), averages, updates[0]))


@pytest.mark.parametrize("task", [Fit(), Asking()])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_two_nodes_are_one_with_twice_the_batch(options, task):
    config = dataclasses.replace(CONFIG, **options)
    one = make_learner(config, (task,))
    two = TwoNodes(config, make_learner(config, (task,)), reducers=3)
    for update in range(3):
        parts, whole = batches(3, seed=update)
        expected = one.train(whole, 1e-3)["grad_norm"]
        assert two.round(parts, 1e-3) == pytest.approx(expected, rel=1e-4)
    wanted, found = one.get_state(), two.state()
    assert found.keys() == wanted.keys() and found["version"] == 3
    two.learner.set_state(found)
    assert weights_sha256(found) == weights_sha256(two.learner.get_state())
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype
        rtol = 1e-3 if name.startswith("optimizer/") else 1e-5
        np.testing.assert_allclose(array, wanted[name], rtol=rtol, atol=1e-5, err_msg=name)


def test_what_travels():
    """Gradients that are finite, and rounded if the run says so."""
    config = dataclasses.replace(CONFIG, **OPTIONS["adam"])
    two, (batch, bad) = TwoNodes(config, make_learner(config), reducers=2), batches(3, seed=0)[0]
    exact = two.contribution(two.exchange(), batch).gradient
    rounded = two.contribution(two.exchange("bfloat16"), batch).gradient
    assert exact.dtype == np.float32 and rounded.dtype == np.uint16
    np.testing.assert_allclose(unpack(rounded), exact, rtol=2**-8, atol=1e-30)
    bad["base"]["returns"][0, 0] = np.nan
    assert two.contribution(two.exchange(), bad).gradient is None


def test_agents_act_with_the_weights_after_the_last_gradient():
    """Which come when the next gradient is asked for."""
    held = []
    exchange = Exchange(SimpleNamespace(hold=lambda: held.append(1)), Rows({}, ()), "float32")
    waits = threading.Thread(target=exchange.hold)
    waits.start()
    time.sleep(0.2)
    assert not held
    asks = threading.Thread(target=lambda: pytest.raises(Left, exchange.ask))
    asks.start()
    waits.join(60)
    assert held
    exchange.leave()
    asks.join(60)
    assert not asks.is_alive()


def test_all_trainers_and_the_asker_leave():
    exchange = Exchange(None, Rows({}, ()), "float32")
    with ThreadPoolExecutor() as threads:
        trainers = [threads.submit(exchange.train, {}, 1e-3, 0.01, 0.0) for _ in range(2)]
        exchange.leave()
        for method in (*(trainer.result for trainer in trainers), exchange.ask):
            with pytest.raises(Left):
                method()
