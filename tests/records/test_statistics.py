from __future__ import annotations

import itertools

import numpy as np
import pytest

from gunreal.records import statistics


def arrays(*rows):
    return [np.array(row, float) for row in rows]


def test_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert statistics.interquartile_mean(arrays((1, 100), (2, 3), (4, -50), (5, 6))) == (2 + 3 + 4 + 5) / 4
    assert statistics.interquartile_mean(arrays((0, 1, 2), (9,))) == 1.5  # games may have different numbers of runs
    assert statistics.interquartile_mean(arrays((1, 2, 6))) == 3  # a quarter of three is none
    curves = arrays([(1, 8), (2, 7), (3, 6), (90, -5)])
    assert statistics.interquartile_mean(curves).tolist() == [2.5, 6.5]  # of each point


def test_probability_of_improvement_is_of_pairs_of_each_game():
    ours, others = arrays((1, 3), (5,)), arrays((2, 3), (5, 6))
    assert statistics.probability_of_improvement(ours, others) == ((0 + 0 + 1 + 0.5) / 4 + (0.5 + 0) / 2) / 2
    assert statistics.probability_of_improvement(others, ours) == pytest.approx(1 - 0.3125)


def test_interval_against_all_resamples():
    """Each game is resampled by itself: the quantiles of the statistic over every resample of both games."""
    scores = arrays((1, 4.5, 2.2, 7), (10, 31, 20, 17.3))
    draws = [itertools.product(runs, repeat=len(runs)) for runs in scores]
    means = [np.mean([np.mean(a), np.mean(b)]) for a, b in itertools.product(*map(list, draws))]
    found = statistics.interval(lambda runs: np.mean([of.mean(axis=0) for of in runs], axis=0), scores)
    assert found == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.4)
    assert statistics.interval(statistics.interquartile_mean, arrays((2, 2), (2,))) == (2, 2)


def test_interval_of_two_settings():
    low, high = statistics.interval(statistics.probability_of_improvement, arrays((5, 6)), arrays((1, 2)))
    assert (low, high) == (1, 1)


def test_paired_test_counts_sign_flips():
    assert statistics.paired_test(np.array([1.0, 2.0, 3.0])) == 2 / 8  # only +++ and --- are as far from 0
    assert statistics.paired_test(np.array([3.0, -1.0])) == 1  # 4 and 2 in both directions; the sum is 2
    assert statistics.paired_test(np.array([0.0, 0.0])) == 1
    many = np.linspace(0.1, 1, 20)
    assert statistics.paired_test(many) < 1e-3 and statistics.paired_test(many - many.mean()) > 0.9
