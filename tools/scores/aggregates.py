"""Aggregate scores over runs and games (Agarwal et al. 2021): interquartile mean and probability of improvement.

The package rliable computes the same, but its dependency arch 7.2 can't be imported together with pandas 3. Unlike
rliable, these functions accept a different number of runs for each game.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Scores = Sequence[np.ndarray]  # an array of runs for each game
_RESAMPLES = 2000


def interquartile_mean(scores: Scores) -> float:
    """Returns the mean of all runs of all games without the lowest and the highest quarter."""
    values = np.sort(np.concatenate(scores))
    cut = len(values) // 4
    return float(values[cut : len(values) - cut].mean())


def probability_of_improvement(ours: Scores, others: Scores) -> float:
    """Returns the probability that a run of ours beats a run of the others on a random game. Ties count half."""
    wins = [np.mean(np.sign(a[:, None] - b[None, :]) / 2 + 0.5) for a, b in zip(ours, others, strict=True)]
    return float(np.mean(wins))


def interval(statistic: Callable[..., float], *systems: Scores) -> tuple[float, float]:
    """Returns the 95 % percentile interval of a statistic of one or two systems, by a stratified bootstrap.

    Each resample draws the runs of every game of every system with replacement.
    """
    rng = np.random.default_rng(0)

    def resample(scores: Scores) -> Scores:
        return [runs[rng.integers(len(runs), size=len(runs))] for runs in scores]

    found = [statistic(*map(resample, systems)) for _ in range(_RESAMPLES)]
    low, high = np.percentile(found, (2.5, 97.5))
    return float(low), float(high)
