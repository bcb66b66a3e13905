"""Statistics of few runs (Agarwal et al. 2021): interquartile mean, probability of improvement, intervals, paired test.

The package rliable has the first three, but its dependency arch 7.2 cannot be imported together with pandas 3. These
functions also accept a different number of runs in each environment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Scores = Sequence[np.ndarray]  # for each environment `[runs, ...]`
_RESAMPLES = 2000
_EXACT = 14  # pairs up to which the paired test takes all signs


def interquartile_mean(scores: Scores) -> Any:
    """The mean over all runs of all environments without the lowest and the highest quarter, `[...]`."""
    values = np.sort(np.concatenate(scores), axis=0)
    cut = len(values) // 4
    return values[cut : len(values) - cut].mean(axis=0)


def probability_of_improvement(ours: Scores, others: Scores) -> Any:
    """The probability that a run of ours beats one of the others in a random environment, `[...]`. Ties count half."""
    pairs = zip(ours, others, strict=True)
    return np.mean([(np.sign(a[:, None] - b[None, :]) / 2 + 0.5).mean(axis=(0, 1)) for a, b in pairs], axis=0)


def interval(statistic: Callable[..., Any], *settings: Scores) -> tuple[Any, Any]:
    """The 95 % percentile interval of a statistic of one or two settings, by a stratified bootstrap.

    Each resample draws the runs of every environment of every setting with replacement.

    Returns:
      Low and high, of the statistic's shape.
    """
    rng = np.random.default_rng(0)

    def resampled(scores: Scores) -> Scores:
        return [runs[rng.integers(len(runs), size=(len(runs), _RESAMPLES))] for runs in scores]

    low, high = np.percentile(statistic(*map(resampled, settings)), (2.5, 97.5), axis=0)
    return low, high


def paired_test(differences: np.ndarray) -> float:
    """The two-sided p-value of a sign-flip permutation test for a mean difference of 0. `differences` is `[pairs]`."""
    pairs = len(differences)
    if pairs <= _EXACT:
        signs = np.array(list(itertools.product((1, -1), repeat=pairs)))
    else:
        signs = np.random.default_rng(0).choice((1, -1), size=(2**_EXACT, pairs))
        signs[0] = 1  # the observed one
    sums = np.abs(signs @ differences)
    return float(np.mean(sums >= sums[0] * (1 - 1e-9)))
