"""How soon a scheduler has found counts that train as fast as the best fixed setting, and the memory that it took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import report
from experiments.table import LearningExperiment
from gunreal.records import metrics

SHARE = 0.9  # of the best fixed setting's training rate, which a scheduler is to reach
WINDOW = 30.0  # seconds over which a rate is taken: no single lucky line of metrics counts
_COUNTS = ("agents", "predictors", "trainers")
Lines = Sequence[dict[str, Any]]


def rate(lines: Lines) -> float:
    """Agent steps trained on a second in the second half of a run."""
    seconds, trained = _trained(lines)
    middle = (seconds[0] + seconds[-1]) / 2
    return float((trained[-1] - np.interp(middle, seconds, trained)) / max(seconds[-1] - middle, 1e-9))


def first_reach(lines: Lines, wanted: float) -> float | None:
    """Seconds until the rate over the last `WINDOW` is at least `wanted`, or None."""
    seconds, trained = _trained(lines)
    start = seconds - WINDOW
    rates = (trained - np.interp(start, seconds, trained)) / WINDOW
    reached = (start >= 0) & (rates >= wanted)
    return float(seconds[reached.argmax()]) if reached.any() else None


def _trained(lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and agent steps trained on by then; from the run's start, where it had none."""
    points = [(0.0, 0.0), *((line["seconds"], line["trained"]) for line in lines)]
    seconds, trained = np.array(points, np.float64).T
    return seconds, trained


def measure(experiment: LearningExperiment, logdir: Path) -> dict[str, Any]:
    """The numbers of an experiment, for JSON.

    "best" is the fixed setting that trains fastest, "target" what is to be reached: `SHARE` of its rate. Of each
    setting, medians over its runs: "rate" in the second half, its "share" of the best one's, "seconds_to_target", null
    where half of the runs did not get there; "counts" of agents, predictors and trainers at the end; the largest
    "memory_bytes", and their "memory_limit".

    Raises:
      ConfigError: no run has trained yet.
    """
    found = report.find(experiment, logdir, "tps", "trained yet")
    lines = {setting: [metrics.read(path / metrics.FILE) for path in paths] for setting, paths in found.items()}
    rows = {}
    for setting, of in lines.items():
        row = report.about_runs(experiment, setting, found[setting], of)
        row["fixed"] = experiment.settings[setting].fields.get("scheduler", "off") == "off"
        row |= {"rates": [rate(run) for run in of], "rate": report.median([rate(run) for run in of])}
        row["counts"] = {name: report.median([run[-1][name] for run in of]) for name in _COUNTS}
        row["memory_bytes"] = max(line["memory_bytes"] or 0 for run in of for line in run)
        row["memory_limit"] = of[0][-1]["memory_limit"]
        rows[setting] = row
    fixed = [setting for setting, row in rows.items() if row["fixed"]]
    best = max(fixed, key=lambda setting: rows[setting]["rate"], default=None)
    target = SHARE * rows[best]["rate"] if best else None
    for setting, of in lines.items():
        reached = [first_reach(run, target) for run in of] if target else []
        rows[setting]["seconds_to_target"] = report.median(reached)
        rows[setting]["share"] = rows[setting]["rate"] / rows[best]["rate"] if target and best else None
    return report.about(experiment, found) | {"best": best, "target": target, "settings": rows}


def table(results: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    mark = report.number(results["target"], ",.0f")
    lines = [
        f"**{results['title']}** on `{results['env']}`, {results['budget']} a run.",
        "",
        f"| | seeds | agents/predictors/trainers at the end | trained a second | of the best fixed | "
        f"minutes to {mark} | most memory, MB | its limit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, row in results["settings"].items():
        minutes = row["seconds_to_target"] and row["seconds_to_target"] / 60
        cells = [
            row["label"] + (" (best fixed)" if setting == results["best"] else ""),
            report.seeds(row["finished"]),
            "/".join(f"{count:g}" for count in row["counts"].values()),
            f"{row['rate']:,.0f}",
            report.number(row["share"], ".2f"),
            report.number(minutes, ".1f", "not reached"),
            f"{row['memory_bytes'] / 1e6:,.0f}",
            report.number(row["memory_limit"] and row["memory_limit"] / 1e6, ",.0f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    note = (
        "Medians over seeds. Rates are agent steps trained on a second, in the second half of a run; "
        f"{mark} is {SHARE:g} of the best fixed setting's, and is reached when the last {WINDOW:g} s together have it."
    )
    return "\n".join([*lines, "", note, results["paper"]]) + "\n"
