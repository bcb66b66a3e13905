from __future__ import annotations

import math

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, RunningMoments

WEIGHTS = Flat({"weights/torso": (3,), "weights/value/kernel": (2, 1), "weights/value/bias": (1,)})
LAYOUT = Flat({f"statistics/return/{part}": () for part in ("mean", "variance", "count")})
RNG = np.random.default_rng(1)


def moments_of(samples):
    return LAYOUT.join(np.array(x) for x in (samples.mean(), samples.var(), len(samples)))


def make(most=math.inf):
    vector = LAYOUT.join(np.array(x) for x in (0.0, 1.0, 0.0))
    return RunningMoments({"return": Limits(0.01, most)}, LAYOUT, WEIGHTS, vector)


def test_old_samples_are_forgotten_beyond_the_limit():
    moments = make(most=10)
    moments.absorb([moments_of(RNG.normal(0, 1, 1000))])
    moments.absorb([moments_of(RNG.normal(50, 1, 1000))])
    assert moments.vector[0] > 45 and moments.vector[2] == 10
