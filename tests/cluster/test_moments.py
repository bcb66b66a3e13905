from __future__ import annotations

import math

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, Untrained

WEIGHTS = Flat({"weights/torso": (3,), "weights/value/kernel": (2, 1), "weights/value/bias": (1,)})
RNG = np.random.default_rng(1)


def moments_of(samples):
    parts = {"mean": samples.mean(), "variance": samples.var(), "count": len(samples)}
    return {f"statistics/return/{name}": np.float32(x) for name, x in parts.items()}


def make(most=math.inf, **states):
    return Untrained({"return": Limits(0.01, most)}, WEIGHTS, {**moments_of(np.zeros(1)), **states})


def test_old_samples_are_forgotten_beyond_the_limit():
    shared = make(most=10)
    shared.absorb([moments_of(RNG.normal(0, 1, 1000))])
    shared.absorb([moments_of(RNG.normal(50, 1, 1000))])
    assert shared.arrays["statistics/return/mean"] > 45 and shared.arrays["statistics/return/count"] == 10


def test_states_move_by_the_mean_difference_and_keep_their_dtype():
    """Of the nodes that say something about them. Those that nobody changes are not sent again."""
    states = {"n": np.array(2**30 + 1, np.int32), "on": np.array([True, False]), "fixed": np.zeros(3, np.float32)}
    shared = make(**{f"state/a/{name}": array for name, array in states.items()})
    known, said = set(shared.changing()), moments_of(RNG.normal(0, 1, 9))
    for n, on in ((3, [-1, 1]), (4, [0, 0])):
        shared.absorb([said | {"state/a/n": np.float32(n), "state/a/on": np.float32(on)}, said, said])
    assert shared.arrays["state/a/n"] == 2**30 + 8 and shared.arrays["state/a/n"].dtype == np.int32
    np.testing.assert_array_equal(shared.arrays["state/a/on"], [False, True])
    assert shared.changing().keys() == known | {"state/a/n", "state/a/on"}
