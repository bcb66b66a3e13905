"""Reports of learning experiments: a figure, the results as JSON, and a table with the paper's numbers."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import jobs, trainings
from experiments.table import GamesExperiment, LearningExperiment
from gunreal.config import folders
from gunreal.config.schema import ConfigError
from gunreal.records import curves, metrics


def find(experiment: LearningExperiment, logdir: Path, key: str, what: str) -> dict[str, list[Path]]:
    """Returns the runs with a value of `key` in their metrics, by setting and in the order of their seeds.

    Raises:
      ConfigError: no run has such a value. The message ends with `what`, the missing value in words.
    """
    found = {}
    for setting in experiment.settings:
        pattern = re.compile(re.escape(trainings.run_name(experiment.name, setting, "")) + r"(\d+)")
        matches = [match for path in logdir.glob("*") if (match := pattern.fullmatch(path.name)) and _has(path, key)]
        if matches:
            found[setting] = [logdir / match[0] for match in sorted(matches, key=lambda match: int(match[1]))]
    if not found:
        raise ConfigError(f"no run of {experiment.name} in {logdir} has {what}")
    return found


def _has(path: Path, key: str) -> bool:
    file = path / metrics.FILE
    return file.exists() and any(line.get(key) is not None for line in metrics.read(file))


def median(values: Sequence[float | None]) -> float | None:
    """Returns the median, with None counted as infinity: 2 for (1, 2, None). An infinite median is None."""
    if not values:
        return None
    found = float(np.median([math.inf if value is None else value for value in values]))
    return found if math.isfinite(found) else None


def measure(experiment: LearningExperiment, logdir: Path) -> dict[str, Any]:
    """Returns the results of an experiment, ready for JSON.

    "target" is the goal, or the median final score of the reference setting without one. For each setting,
    "steps_to_target" and "seconds_to_target" are medians over its runs, or null if half of them did not reach the
    target. "ratio" is the steps divided by those of the reference, and "updates_per_second" is a median.

    Raises:
      ConfigError: no run has a score yet.
    """
    found = find(experiment, logdir, "score_mean", "a score yet; wait for the first episodes to end")
    lines = {setting: [metrics.read(path / metrics.FILE) for path in paths] for setting, paths in found.items()}
    finals = {setting: [_final(run) for run in of] for setting, of in lines.items()}
    target = experiment.goal if math.isfinite(experiment.goal) else median(finals.get(experiment.reference, []))
    rows = {}
    for setting, of in lines.items():
        low, high = curves.interval(np.array(finals[setting]))
        rates = [run[-1]["step"] / run[-1]["seconds"] for run in of]
        row = about_runs(experiment, setting, found[setting], of)
        row |= {"scores": finals[setting], "score": median(finals[setting]), "interval": [float(low), float(high)]}
        row["steps_per_second"] = median(rates)
        row["updates_per_second"] = median([run[-1].get("updates", 0) / run[-1]["seconds"] for run in of])
        for key, unit in (("step", "steps"), ("seconds", "seconds")):
            reached = [jobs.first_reach(run, target, key) for run in of] if target is not None else []
            row[f"{unit}_to_target"] = median(reached)
        row["paper"] = dict(experiment.settings[setting].paper)
        rows[setting] = row
    reference = rows.get(experiment.reference, {}).get("steps_to_target")
    for row in rows.values():
        row["ratio"] = row["steps_to_target"] / reference if reference and row["steps_to_target"] else None
    return about(experiment, found) | {"reference": experiment.reference, "target": target, "settings": rows}


def about(experiment: LearningExperiment, found: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """Returns the title, the environment, the budget and the note of an experiment."""
    config = folders.saved_config(next(iter(found.values()))[0])
    known = {"experiment": experiment.name, "title": experiment.title, "env": config.env, "paper": experiment.shows}
    return known | {"budget": trainings.budget(config.steps, experiment.minutes)}


def about_runs(
    experiment: LearningExperiment, setting: str, paths: Sequence[Path], lines: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Any]:
    """Returns the label and the runs of a setting, with their steps and whether they have finished."""
    return {
        "label": experiment.settings[setting].label,
        "runs": [path.name for path in paths],
        "steps": [run[-1]["step"] for run in lines],
        "finished": [jobs.is_finished(run, experiment.minutes, experiment.goal) for run in lines],
    }


def _final(lines: Sequence[dict[str, Any]]) -> float:
    return next(line["score_mean"] for line in reversed(lines) if line["score_mean"] is not None)


def table(results: dict[str, Any]) -> str:
    """Returns the results as a Markdown table."""
    target = results["target"]
    mark = f"{target:.2f}" if target is not None else "-"
    lines = [
        f"**{results['title']}** on `{results['env']}`, {results['budget']} per run.",
        "",
        f"| setting | seeds | final score (95 % interval) | steps to {mark} | relative to the reference | "
        f"minutes to {mark} | steps/s | updates/s | score in the paper | relative steps in the paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting, row in results["settings"].items():
        paper = row["paper"]
        cells = [
            row["label"] + (" (reference)" if setting == results["reference"] else ""),
            seeds(row["finished"]),
            _score(row),
            number(row["steps_to_target"], ",.0f", "not reached"),
            number(row["ratio"], ".2f"),
            number(row["seconds_to_target"] and row["seconds_to_target"] / 60, ",.1f"),
            number(row["steps_per_second"], ",.0f"),
            number(row["updates_per_second"], ",.1f"),
            number(paper.get("score"), "g"),
            number(paper.get("ratio"), ".2f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    about = "The table shows medians over seeds. A score is the mean raw score of the last 100 episodes."
    lines += ["", f"{about} {results['paper']}".strip()]
    return "\n".join(lines) + "\n"


def _score(row: dict[str, Any]) -> str:
    """The final score with its interval over seeds, if there are several."""
    interval = f" ({row['interval'][0]:.2f} to {row['interval'][1]:.2f})" if len(row["scores"]) > 1 else ""
    return f"{row['score']:.2f}{interval}"


def seeds(finished: Sequence[bool]) -> str:
    """Returns the number of runs and, if some have not finished, how many."""
    unfinished = len(finished) - sum(finished)
    return str(len(finished)) + (f", {unfinished} unfinished" if unfinished else "")


def number(value: float | None, form: str, missing: str = "-") -> str:
    """Formats a number for a table."""
    return missing if value is None else format(value, form)


def write(
    experiment: LearningExperiment,
    logdir: Path,
    width: int = 1,
    numbers: Callable[[LearningExperiment, Path], dict[str, Any]] = measure,
    text: Callable[[dict[str, Any]], str] = table,
) -> dict[str, Any]:
    """Writes `EXPERIMENT.png`, `.json` and `.md` into the folder of runs, and returns the results.

    Args:
      experiment: the experiment.
      logdir: the folder of runs.
      width: width of the curves' moving average, in lines of metrics.
      numbers: computes the results.
      text: formats the results as Markdown.

    Raises:
      ConfigError: no run has results yet.
      OSError: a file can't be written.
    """
    results = numbers(experiment, logdir)
    groups = {
        experiment.settings[setting].label: [logdir / run for run in row["runs"]]
        for setting, row in results["settings"].items()
    }
    (logdir / f"{experiment.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (logdir / f"{experiment.name}.md").write_text(text(results))
    curves.draw(
        curves.panels(groups, experiment.panels, width),
        logdir / f"{experiment.name}.png",
        title=f"{experiment.title}\n{results['env']}, {results['budget']} per run",
        note=f"Line: {curves.STATISTIC}. {experiment.shows}",
        width=width,
    )
    return results


def write_games(experiment: GamesExperiment, logdir: Path, width: int = 1) -> dict[str, Any]:
    """Writes the same files for an experiment on several games, with a panel and a table for each game.

    Raises:
      ConfigError: no run has a score yet.
      OSError: a file can't be written.
    """
    results: dict[str, Any] = {}
    drawn: list[curves.Panel] = []
    for part in experiment.parts():
        with contextlib.suppress(ConfigError):
            found = results[part.title] = measure(part, logdir)
            groups = {row["label"]: [logdir / run for run in row["runs"]] for row in found["settings"].values()}
            drawn += [panel._replace(title=part.title) for panel in curves.panels(groups, part.panels, width)]
    if not results:
        raise ConfigError(
            f"no run of {experiment.name} in {logdir} has a score yet; wait for the first episodes to end"
        )
    whole = {"experiment": experiment.name, "title": experiment.title, "paper": experiment.shows, "games": results}
    (logdir / f"{experiment.name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    tables = [table(found | {"paper": ""}) for found in results.values()]
    text = "\n".join([f"**{experiment.title}**\n", *tables, experiment.shows])
    (logdir / f"{experiment.name}.md").write_text(text + "\n")
    note = f"Line: {curves.STATISTIC}. {experiment.shows}"
    curves.draw(drawn, logdir / f"{experiment.name}.png", title=experiment.title, note=note, width=width)
    return whole
