from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from gunreal.cluster.compression import unpack
from gunreal.cluster.exchange import Exchange, Left
from gunreal.cluster.flat import Flat
from gunreal.config.derived import Rates

WEIGHTS = Flat({"a": (2,), "b": (1, 2)})
STATISTICS = Flat({"mean": (), "variance": ()})
RATES = Rates(1e-3, 0.5, 0.25)
BATCH = {"base": {"mask": np.ones((3, 4))}}


class Learner:
    """A learner whose gradient is its weights."""

    def __init__(self):
        self.version, self.arrays, self.skipped = 0, [], False

    def assign(self, arrays, version):
        self.arrays, self.version = [array.copy() for array in arrays], version

    def gradient(self, batch, entropy=None, progress=0.0):
        self.given = entropy, progress
        metrics = {"loss": 1.0, "skipped": float(self.skipped)}
        moments = {"return": [np.array(7.0), np.array(8.0)]}
        return types.SimpleNamespace(values=self.arrays[:2], moments=moments, metrics=metrics)


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def exchange(learner):
    return Exchange(learner, WEIGHTS, STATISTICS, "float32")


def asked(exchange, trained):
    """What a node answers while its trainer works."""
    trainer = threading.Thread(target=lambda: trained.append(exchange.train(BATCH, 1e-3, 0.01, 0.0)))
    trainer.start()
    found = exchange.ask()
    trainer.join(10)
    return found


def test_a_gradient_is_computed_with_the_assigned_weights(exchange, learner):
    trained = []
    exchange.assign(
        [np.array([1, 2, 3], np.float32), np.array([4], np.float32)], np.array([5, 6], np.float32), 9, RATES
    )
    found = asked(exchange, trained)
    np.testing.assert_array_equal(found.gradient, [1, 2, 3, 4])
    np.testing.assert_array_equal(found.moments, [7, 8])
    assert [array.shape for array in learner.arrays] == [(2,), (1, 2), (), ()]
    assert found.size == 12 and found.seconds >= 0 and learner.given == (0.5, 0.25)
    assert trained == [{"loss": 1.0, "skipped": 0.0, "version": 9}] and exchange.version == 9


def test_a_gradient_travels_as_bfloat16_with_the_error_of_the_one_before(learner):
    exchange = Exchange(learner, WEIGHTS, STATISTICS, "bfloat16")
    exchange.assign([np.full(4, 1.003, np.float32)], np.zeros(2, np.float32), 1, RATES)
    found = [asked(exchange, []).gradient for _ in range(2)]
    assert [gradient.dtype for gradient in found] == [np.uint16] * 2
    assert [unpack(gradient)[0] for gradient in found] == [1.0, 1.0078125]


def test_a_gradient_that_is_not_finite_is_not_sent(exchange, learner):
    exchange.assign([np.zeros(4, np.float32)], np.zeros(2, np.float32), 1, RATES)
    learner.skipped = True
    assert asked(exchange, []).gradient is None


def test_all_trainers_and_the_asker_leave(exchange):
    left = []

    def wait(method, *args):
        with pytest.raises(Left):
            method(*args)
        left.append(method)

    trainers = [threading.Thread(target=wait, args=(exchange.train, BATCH, 1e-3, 0.01, 0.0)) for _ in range(2)]
    for trainer in trainers:
        trainer.start()
    exchange.leave()
    for trainer in trainers:
        trainer.join(10)
    wait(exchange.ask)
    assert len(left) == 3
