"""Compares the scores of systems on Atari games at equal agent steps and at equal training times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from experiments.jobs import Job, Lines

from scores.aggregates import Scores, interquartile_mean, interval, probability_of_improvement
from scores.games import ATARI_5, human_normalized, predicted_median

_SHORT = 0.02  # share of the steps or seconds that a run may lack and still count
Runs = Mapping[str, Mapping[str, Sequence[Lines]]]  # by system and game, the metrics of each seed
Points = Mapping[str, Mapping[str, np.ndarray]]  # by system and game, a score of each run


def read(jobs: Sequence[Job], labels: Mapping[str, str]) -> dict[str, dict[str, list[Lines]]]:
    """Reads the metrics of the runs that have a score.

    Args:
      jobs: the runs.
      labels: "SYSTEM GAME" for the name of each run.
    """
    found: dict[str, dict[str, list[Lines]]] = {}
    for job in jobs:
        lines = job.lines()
        if any(line["score_mean"] is not None for line in lines):
            system, game = labels[job.name].split()
            found.setdefault(system, {}).setdefault(game, []).append(lines)
    return found


def score_at(lines: Lines, key: str, where: float) -> float:
    """Returns the mean score of 100 episodes at a number of steps or seconds, by linear interpolation."""
    known = [(line[key], line["score_mean"]) for line in lines if line["score_mean"] is not None]
    xs, ys = np.array(known, np.float64).T
    return float(np.interp(where, xs, ys))


def common_seconds(runs: Runs) -> float | None:
    """Returns the training time of the shortest finished run, or None if no run has finished."""
    ends = [lines[-1]["seconds"] for games in runs.values() for of in games.values() for lines in of if _ended(lines)]
    return min(ends, default=None)


def _ended(lines: Lines) -> bool:
    return lines[-1].get("stopped_by") == "steps"


def points(runs: Runs, key: str, where: float) -> dict[str, dict[str, np.ndarray]]:
    """Returns the scores at a number of steps or seconds. Runs that lack a score by then or end before are left out."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for system, games in runs.items():
        for game, of in games.items():
            scores = [score_at(lines, key, where) for lines in of if _covers(lines, key, where)]
            if scores:
                found.setdefault(system, {})[game] = np.array(scores)
    return found


def _covers(lines: Lines, key: str, where: float) -> bool:
    """Whether a run has got to a number of steps or seconds, and had a score by then."""
    first = next((line[key] for line in lines if line["score_mean"] is not None), math.inf)
    return first <= where and lines[-1][key] >= (1 - _SHORT) * where


def compare(scores: Points, ours: Sequence[str]) -> dict[str, Any]:
    """Returns the results of one comparison, ready for JSON.

    Args:
      scores: the scores.
      ours: labels of the gunreal systems, which are compared with each of the others.

    Returns:
      "games": the games that every system has. All aggregates use these.
      "systems": for each system, its "scores" by game; "iqm", the human-normalized interquartile mean; and "atari_5",
      the median over 57 games as predicted from five. Both are [value, low, high], or None if a game is missing.
      "improvement": for each pair of ours and another system, [probability, low, high].
      Without two runs of every game there is no interval, and the list contains the value only.
    """
    first = next(iter(scores.values()), {})
    games = [game for game in first if all(game in of for of in scores.values())]
    rows: dict[str, Any] = {}
    normalized: dict[str, Scores] = {}
    for system, of in scores.items():
        rows[system] = {"scores": {game: runs.tolist() for game, runs in of.items()}, "iqm": None, "atari_5": None}
        if not games:
            continue
        normalized[system] = [human_normalized(game, of[game]) for game in games]
        rows[system]["iqm"] = _with_interval(interquartile_mean, normalized[system])
        if set(ATARI_5) <= set(games):

            def median(runs: Scores) -> float:
                return predicted_median({game: float(of.mean()) for game, of in zip(games, runs, strict=True)})

            rows[system]["atari_5"] = _with_interval(median, normalized[system])
    improvement = {
        us: {
            other: _with_interval(probability_of_improvement, normalized[us], normalized[other])
            for other in normalized
            if other not in ours
        }
        for us in normalized
        if us in ours
    }
    return {"games": games, "systems": rows, "improvement": improvement}


def _with_interval(statistic: Callable[..., float], *systems: Scores) -> list[float]:
    value = statistic(*systems)
    if any(len(runs) < 2 for scores in systems for runs in scores):  # a resample of one run is the same run
        return [value]
    return [value, *interval(statistic, *systems)]


def summarize(runs: Runs, ours: Sequence[str], steps: int, minutes: float | None) -> dict[str, Any]:
    """Returns the comparison at equal "steps" and at equal "minutes". "minutes" is None before a run has finished.

    Args:
      runs: the metrics of all runs.
      ours: labels of the gunreal systems.
      steps: agent steps at which the systems are compared.
      minutes: training time at which the systems are compared. None stands for the shortest finished run's.
    """
    seconds = common_seconds(runs) if minutes is None else 60 * minutes
    by_steps = compare(points(runs, "step", steps), ours) | {"at": steps}
    if seconds is None:
        return {"steps": by_steps, "minutes": None}
    by_minutes = compare(points(runs, "seconds", seconds), ours) | {"at": seconds / 60}
    return {"steps": by_steps, "minutes": by_minutes}
