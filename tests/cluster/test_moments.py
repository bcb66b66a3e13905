from __future__ import annotations

import math

import numpy as np
import pytest

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, RunningMoments, within
from gunreal.cluster.reducer import Rescaling

WEIGHTS = Flat({"weights/torso": (3,), "weights/value/kernel": (2, 1), "weights/value/bias": (1,)})
LAYOUT = Flat({f"statistics/return/{part}": () for part in ("mean", "variance", "count")})
RNG = np.random.default_rng(1)


def moments_of(samples):
    return LAYOUT.join(np.array(x) for x in (samples.mean(), samples.var(), len(samples)))


def make(most=math.inf):
    vector = LAYOUT.join(np.array(x) for x in (0.0, 1.0, 0.0))
    return RunningMoments({"return": Limits(0.01, most)}, LAYOUT, WEIGHTS, vector)


def test_moments_are_those_of_all_samples():
    moments, all_samples = make(), []
    for _ in range(3):
        nodes = [RNG.normal(3, 2, size) for size in (5, 50, 17)]
        moments.absorb([moments_of(samples) for samples in nodes])
        all_samples += nodes
    whole = np.concatenate(all_samples)
    np.testing.assert_allclose(moments.vector, [whole.mean(), whole.var(), len(whole)], rtol=1e-5)


def test_old_samples_are_forgotten_beyond_the_limit():
    moments = make(most=10)
    moments.absorb([moments_of(RNG.normal(0, 1, 1000))])
    moments.absorb([moments_of(RNG.normal(50, 1, 1000))])
    assert moments.vector[0] > 45 and moments.vector[2] == 10


def test_the_value_layer_predicts_the_same_returns_as_before():
    moments = make()
    assert moments.absorb([moments_of(RNG.normal(3, 2, 50))]) == []  # there are no predictions to keep
    known = moments.vector.copy()
    weights, x = RNG.normal(size=WEIGHTS.size), RNG.normal(size=2)
    rescalings = moments.absorb([moments_of(RNG.normal(40, 9, 50))])

    def value(weights, vector):
        return (x @ weights[3:5] + weights[5]) * math.sqrt(vector[1]) + vector[0]

    before = value(weights, known)
    for start, stop, factor, offset in rescalings:
        weights[start:stop] = weights[start:stop] * factor + offset
    assert value(weights, moments.vector) == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    ("part", "places"),
    [(slice(0, 5), [(3, 5), None]), (slice(5, 8), [(0, 3), (2, 3)]), (slice(8, 20), [(0, 1), (2, 3)])],
)
def test_a_slice_has_its_part_of_a_rescaling(part, places):
    rescalings = [Rescaling(3, 9, 2.0, 1.0), Rescaling(7, 8, 3.0, 0.0)]
    if part.start == 8:
        rescalings[1] = Rescaling(10, 11, 3.0, 0.0)
    wanted = [
        rescaling._replace(start=place[0], stop=place[1])
        for rescaling, place in zip(rescalings, places, strict=True)
        if place
    ]
    assert within(rescalings, part) == wanted
