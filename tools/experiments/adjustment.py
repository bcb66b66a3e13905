"""How soon does a scheduler train as fast as the best fixed setting, and how much memory does it use?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import report
from experiments.table import LearningExperiment
from gunreal.records import metrics

SHARE = 0.9  # target rate of a scheduler, as a share of the best fixed setting's training rate
WINDOW = 30.0  # seconds over which a rate is averaged, so that a single line of metrics does not decide
_COUNTS = ("agents", "predictors", "trainers")
Lines = Sequence[dict[str, Any]]


def rate(lines: Lines) -> float:
    """Returns the agent steps trained per second in the second half of a run."""
    seconds, trained = _trained(lines)
    middle = (seconds[0] + seconds[-1]) / 2
    return float((trained[-1] - np.interp(middle, seconds, trained)) / max(seconds[-1] - middle, 1e-9))


def first_reach(lines: Lines, wanted: float) -> float | None:
    """Returns the seconds until the rate over the last `WINDOW` seconds is at least `wanted`, or None."""
    seconds, trained = _trained(lines)
    start = seconds - WINDOW
    rates = (trained - np.interp(start, seconds, trained)) / WINDOW
    reached = (start >= 0) & (rates >= wanted)
    return float(seconds[reached.argmax()]) if reached.any() else None


def _trained(lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    """Returns times in seconds and the agent steps trained by then, starting with (0, 0)."""
    points = [(0.0, 0.0), *((line["seconds"], line["trained"]) for line in lines)]
    seconds, trained = np.array(points, np.float64).T
    return seconds, trained


def measure(experiment: LearningExperiment, logdir: Path) -> dict[str, Any]:
    """Returns the results of an experiment, ready for JSON.

    "best" is the fixed setting that trains fastest, and "target" is `SHARE` of its training rate. "settings" has, for
    each setting, medians over its runs:

    - "rate", the training rate in the second half of the run, and "share", this rate divided by that of "best",
    - "seconds_to_target", or null if half of the runs did not reach the target,
    - "counts" of agents, predictors and trainers at the end,
    - the largest "memory_bytes", and the "memory_limit".

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
    """Returns the results as a Markdown table."""
    mark = report.number(results["target"], ",.0f")
    lines = [
        f"**{results['title']}** on `{results['env']}`, {results['budget']} per run.",
        "",
        f"| setting | seeds | agents/predictors/trainers at the end | agent steps trained per second | "
        f"relative to the best fixed setting | minutes to {mark} | peak memory, MB | memory limit, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, row in results["settings"].items():
        minutes = row["seconds_to_target"] and row["seconds_to_target"] / 60
        cells = [
            row["label"] + (" (best fixed setting)" if setting == results["best"] else ""),
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
        f"The table shows medians over seeds. Rates are those of the second half of a run. The target, {mark} agent "
        f"steps per second, is {SHARE:g} times the best fixed setting's rate. A run reaches it when its mean rate over "
        f"{WINDOW:g} s does."
    )
    return "\n".join([*lines, "", note, results["paper"]]) + "\n"
