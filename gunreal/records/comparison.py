"""Compares the scores of settings over seeds and environments, from the files of their runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gunreal.config import folders
from gunreal.config.schema import ConfigError
from gunreal.records import checkpoint, curves, metrics
from gunreal.records.human import Reference, reference
from gunreal.records.statistics import (
    Scores,
    interquartile_mean,
    interval,
    paired_test,
    probability_of_improvement,
)

EVALUATION = "evaluation.json"  # in the folder of a run: what `gunreal evaluate RUN --json` prints
_ENOUGH = 5  # seeds with which an interval that excludes chance decides
_SHORT = 0.02  # share of the steps that a run may lack
_POINTS = 100  # of a drawn curve


class Run(NamedTuple):
    """A run: its folder, environment and seed, whether it has ended by itself, and its lines with a score."""

    path: Path
    env: str
    seed: int
    finished: bool
    resumed: bool
    lines: Sequence[Mapping[str, Any]]
    evaluated: float | None

    def at(self, key: str, where: np.ndarray) -> np.ndarray:
        """The interpolated mean scores of 100 episodes at agent steps or seconds, `[n]`."""
        xs, ys = (np.array([line[name] for line in self.lines], np.float64) for name in (key, "score_mean"))
        return np.interp(where, xs, ys)

    def first(self, key: str, score: float | None) -> Any:
        """The value of `key` in the first line that reaches a score over 100 episodes, or None."""
        return None if score is None else metrics.first_reach(self.lines, score, key)


def evaluation(run_dir: Path) -> dict[str, Any] | None:
    """The result of the evaluation of a run's newest checkpoint, or None if there is none that can be read."""
    try:
        found = json.loads((run_dir / EVALUATION).read_text())
        return found if found["scores"] and found["step"] >= checkpoint.newest_step(run_dir) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read(run_dir: Path, steps: int | None = None) -> Run:
    """Reads a run, or what it was after a number of agent steps.

    Raises:
      ConfigError: it has no score yet, is shorter than `steps`, or its files are damaged.
    """
    config = folders.saved_config(run_dir)
    every = metrics.lines(run_dir)
    lines = [line for line in every if line.get("score_mean") is not None and line["step"] <= (steps or math.inf)]
    if not lines:
        raise ConfigError(f"{run_dir} has no score yet; wait for its first episodes to end, or leave it out")
    if steps and every[-1]["step"] < (1 - _SHORT) * steps:
        raise ConfigError(f"{run_dir} has taken {every[-1]['step']:,} steps; use --steps {every[-1]['step']} or less")
    played = None if steps else evaluation(run_dir)
    mean = float(np.mean(played["scores"])) if played else None
    finished = every[-1].get("stopped_by") == "steps"
    resumed = any(line.get("resumed") for line in every)
    return Run(run_dir, config.env, config.seed, finished, resumed, lines, mean)


def compare(
    groups: Mapping[str, Sequence[Path]], score: float | None = None, steps: int | None = None
) -> dict[str, Any]:
    """Compares settings. The first one is the reference.

    Args:
      groups: for the label of each setting the folders of its runs.
      score: mean score over 100 training episodes, for the steps and minutes that runs needed to it.
      steps: agent steps after which runs are compared. None compares them at their ends.

    Returns:
      "score" and "steps" as given. "environments": for each environment "final", which is "evaluation" if all its runs
      have been evaluated and else "training"; "settings", by label: "runs" (for each "run", "seed", "step", "finished",
      "resumed", "score", "area", "steps_to", "minutes_to"), "score" and "area", interquartile means [value, low, high]
      with 95 % intervals, and "steps_to" and "minutes_to", medians, None if half of the runs did not reach the score;
      and "pairs", the comparisons with the reference (`_pair`). The area is that under the learning curve, divided by
      the steps of the shortest run. "all": None for one environment, or if no setting has runs in each; else
      "settings", by label [value, low, high] of human-normalized scores, or None where an environment has no reference
      scores, and "pairs". An interval needs two runs in each environment; otherwise low and high are None.

    Raises:
      ConfigError: a run cannot be read or has no score, or no two settings have runs in the same environment.
    """
    runs = {label: [read(path, steps) for path in paths] for label, paths in groups.items()}
    envs = list(dict.fromkeys(run.env for of in runs.values() for run in of))
    found: dict[str, Any] = {"score": score, "steps": steps, "environments": {}, "all": None}
    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for env in envs:
        here = {label: members for label, of in runs.items() if (members := [run for run in of if run.env == env])}
        found["environments"][env] = _environment(here, score, steps)
        scores[env] = {label: of["runs"] for label, of in found["environments"][env]["settings"].items()}
        found["environments"][env]["pairs"] = _pairs({env: scores[env]}, {env: Reference(0.0, 1.0)})
    if len(runs) > 1 and all(len(of) == 1 for of in scores.values()):
        raise ConfigError(f"the settings have no environment in common ({', '.join(envs)}); choose runs of one")
    if len(envs) > 1:
        found["all"] = _all(scores)
    return found


def _environment(runs: Mapping[str, Sequence[Run]], score: float | None, steps: int | None) -> dict[str, Any]:
    every = [run for of in runs.values() for run in of]
    evaluated = all(run.evaluated is not None for run in every)
    end = min(steps or math.inf, *(run.lines[-1]["step"] for run in every), math.inf)
    settings = {}
    for label, of in runs.items():
        rows = [_row(run, evaluated, end, score) for run in of]
        about = {key: _with_interval(interquartile_mean, [_values(rows, key)]) for key in ("score", "area")}
        settings[label] = {"runs": rows, **about, **{key: _median(rows, key) for key in ("steps_to", "minutes_to")}}
    return {"final": "evaluation" if evaluated else "training", "settings": settings}


def _row(run: Run, evaluated: bool, end: float, score: float | None) -> dict[str, Any]:
    xs = np.linspace(0, end, 1000)
    seconds = run.first("seconds", score)
    return {
        "run": run.path.name,
        "seed": run.seed,
        "step": run.lines[-1]["step"],
        "finished": run.finished or seconds is not None,
        "resumed": run.resumed,
        "score": run.evaluated if evaluated else run.lines[-1]["score_mean"],
        "area": float(run.at("step", xs).mean()),
        "steps_to": run.first("step", score),
        "minutes_to": None if seconds is None else seconds / 60,
    }


def _values(rows: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows], np.float64)


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The median, in which runs that did not get there count as infinite."""
    found = float(np.median([math.inf if row[key] is None else row[key] for row in rows]))
    return found if math.isfinite(found) else None


def _with_interval(statistic: Any, *settings: Scores) -> list[float | None]:
    value = float(statistic(*settings))
    if any(len(runs) < 2 for scores in settings for runs in scores):  # a resample of one run is the same run
        return [value, None, None]
    return [value, *map(float, interval(statistic, *settings))]


def _all(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The comparison over all environments, for the settings that have runs in each."""
    labels = [label for label in next(iter(scores.values())) if all(label in of for of in scores.values())]
    if not labels:
        return None
    scores = {env: {label: of[label] for label in labels} for env, of in scores.items()}
    scales = {env: reference(env) for env in scores}
    settings: dict[str, Any] = dict.fromkeys(labels)
    known = {env: scale for env, scale in scales.items() if scale}
    if len(known) == len(scores):
        for label in labels:
            settings[label] = _with_interval(interquartile_mean, _normalized(scores, known, label))
    return {"settings": settings, "pairs": _pairs(scores, known)}


def _normalized(scores: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Reference], label: str) -> Scores:
    return [scales[env].normalized(_values(of[label], "score")) for env, of in scores.items()]


def _pairs(scores: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Reference]) -> list[dict[str, Any]]:
    """Compares every setting with the first one.

    Returns:
      For each "setting" and "reference": "improvement", the probability that a run of the setting beats one of the
      reference, [value, low, high]; "seeds", the smallest number of runs of either in an environment; and "verdict",
      "better", "worse" or "undecided". If scores have a common scale, there are also "pairs", the number of runs with
      equal seeds; "difference", their mean difference; and "p", the p-value of a sign-flip test that it is 0.
    """
    reference_label, *others = next(iter(scores.values()))
    return [_pair(scores, scales, label, reference_label) for label in others]


def _pair(
    scores: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Reference], ours: str, other: str
) -> dict[str, Any]:
    raw = [[_values(of[label], "score") for of in scores.values()] for label in (ours, other)]
    improvement = _with_interval(probability_of_improvement, *raw)
    seeds = min(len(runs) for setting in raw for runs in setting)
    row: dict[str, Any] = {"setting": ours, "reference": other, "seeds": seeds, "improvement": improvement}
    low, high = improvement[1:]
    if len(scales) == len(scores):
        normalized = [_normalized(scores, scales, label) for label in (ours, other)]
        differences = _differences(scores, scales, ours, other)
        row |= {"pairs": len(differences), "difference": None, "p": None}
        if len(differences):
            row |= {"difference": float(differences.mean()), "p": paired_test(differences)}
    if low is None or high is None or (seeds < _ENOUGH and len(scales) < len(scores)):
        verdict = 0
    elif seeds < _ENOUGH:  # only disjoint intervals decide
        mine, theirs = (interval(interquartile_mean, setting) for setting in normalized)
        verdict = int(mine[0] > theirs[1]) - int(theirs[0] > mine[1])
    else:
        verdict = int(low > 0.5) - int(high < 0.5)
    return row | {"verdict": ("undecided", "better", "worse")[verdict]}


def _differences(
    scores: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Reference], ours: str, other: str
) -> np.ndarray:
    """Ours minus the other's scores of runs with equal environments and seeds, `[pairs]`."""
    found = []
    for env, of in scores.items():
        mine, theirs = ({row["seed"]: scales[env].normalized(row["score"]) for row in of[x]} for x in (ours, other))
        found += [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
    return np.array(found)


def panels(groups: Mapping[str, Sequence[Path]], steps: int | None = None) -> list[curves.Panel]:
    """Learning curves over agent steps and over training time, up to the end of the shortest run of each setting.

    A curve is the interquartile mean over the runs of all environments with a stratified bootstrap interval. Scores of
    several environments are human-normalized.

    Raises:
      ConfigError: a run cannot be read, or several environments lack reference scores.
    """
    runs = {label: [read(path, steps) for path in paths] for label, paths in groups.items()}
    envs = list(dict.fromkeys(run.env for of in runs.values() for run in of))
    scales = {env: reference(env) if len(envs) > 1 else Reference(0.0, 1.0) for env in envs}
    if missing := next((env for env, scale in scales.items() if scale is None), None):
        raise ConfigError(f"{missing} has no reference scores, so its curves have no common scale with those of others")
    name = "score_mean" if len(envs) == 1 else "human-normalized score"
    drawn = []
    for key in ("step", "seconds"):
        merged = []
        for label, of in runs.items():
            first, last = max(run.lines[0][key] for run in of), min(run.lines[-1][key] for run in of)
            x = np.linspace(min(first, last), last, _POINTS)
            scores = [
                np.array([scale.normalized(run.at(key, x)) for run in of if run.env == env])
                for env, scale in scales.items()
                if scale and any(run.env == env for run in of)
            ]
            low, high = interval(interquartile_mean, scores) if len(of) > 1 else (None, None)
            merged.append(curves.Curve(label, x, interquartile_mean(scores), low, high, min(map(len, scores))))
        drawn.append(curves.Panel(key, name, merged))
    return drawn
