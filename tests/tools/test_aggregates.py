from __future__ import annotations

import itertools

import numpy as np
import pytest
from scores import aggregates


def arrays(*rows):
    return [np.array(row, float) for row in rows]


def test_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert aggregates.interquartile_mean(arrays((1, 100), (2, 3), (4, -50), (5, 6))) == (2 + 3 + 4 + 5) / 4
    assert aggregates.interquartile_mean(arrays((0, 1, 2), (9,))) == 1.5  # games may have different numbers of runs
    assert aggregates.interquartile_mean(arrays((1, 2, 6))) == 3  # a quarter of three is none


def test_probability_of_improvement_is_of_pairs_of_each_game():
    ours, others = arrays((1, 3), (5,)), arrays((2, 3), (5, 6))
    assert aggregates.probability_of_improvement(ours, others) == ((0 + 0 + 1 + 0.5) / 4 + (0.5 + 0) / 2) / 2
    assert aggregates.probability_of_improvement(others, ours) == pytest.approx(1 - 0.3125)


def test_interval_against_all_resamples():
    """Each game is resampled by itself: the quantiles of the statistic over every resample of both games."""
    scores = arrays((1, 4.5, 2.2, 7), (10, 31, 20, 17.3))
    draws = [itertools.product(runs, repeat=len(runs)) for runs in scores]
    means = [np.mean([np.mean(a), np.mean(b)]) for a, b in itertools.product(*map(list, draws))]
    found = aggregates.interval(lambda runs: float(np.mean([of.mean() for of in runs])), scores)
    assert found == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.4)
    assert aggregates.interval(aggregates.interquartile_mean, arrays((2, 2), (2,))) == (2, 2)


def test_interval_of_two_systems():
    low, high = aggregates.interval(aggregates.probability_of_improvement, arrays((5, 6)), arrays((1, 2)))
    assert (low, high) == (1, 1)
