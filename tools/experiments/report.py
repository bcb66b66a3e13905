"""What an experiment has come to: its picture, its numbers as JSON, and as a table beside the paper's."""

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
    """The runs that have a value of `key` in their metrics: by setting, in the order of their seeds.

    Raises:
      ConfigError: there is none; `what` says what they lack.
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
    """The median, where None is more than every number: of (1, 2, None) it is 2; None where it is no number itself."""
    if not values:
        return None
    found = float(np.median([math.inf if value is None else value for value in values]))
    return found if math.isfinite(found) else None


def measure(experiment: LearningExperiment, logdir: Path) -> dict[str, Any]:
    """The numbers of an experiment, for JSON.

    "target" is the median of the reference's final scores; "steps_to_target" and "seconds_to_target" are each setting's
    medians over its runs, null where half of them did not get there; "ratio" is steps over the reference's steps.

    Raises:
      ConfigError: no run has a score yet.
    """
    found = find(experiment, logdir, "score_mean", "a score yet, which an episode's end gives")
    lines = {setting: [metrics.read(path / metrics.FILE) for path in paths] for setting, paths in found.items()}
    finals = {setting: [_final(run) for run in of] for setting, of in lines.items()}
    target = median(finals.get(experiment.reference, []))
    rows = {}
    for setting, of in lines.items():
        low, high = curves.interval(np.array(finals[setting]))
        rates = [run[-1]["step"] / run[-1]["seconds"] for run in of]
        row = about_runs(experiment, setting, found[setting], of)
        row |= {"scores": finals[setting], "score": median(finals[setting]), "interval": [float(low), float(high)]}
        row["steps_per_second"] = median(rates)
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
    """What is known of an experiment beside its settings."""
    config = folders.saved_config(next(iter(found.values()))[0])
    known = {"experiment": experiment.name, "title": experiment.title, "env": config.env, "paper": experiment.shows}
    return known | {"budget": trainings.budget(config.steps, experiment.minutes)}


def about_runs(
    experiment: LearningExperiment, setting: str, paths: Sequence[Path], lines: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Any]:
    """What is known of a setting's runs beside what they are compared by."""
    return {
        "label": experiment.settings[setting].label,
        "runs": [path.name for path in paths],
        "steps": [run[-1]["step"] for run in lines],
        "finished": [jobs.is_finished(run, experiment.minutes) for run in lines],
    }


def _final(lines: Sequence[dict[str, Any]]) -> float:
    return next(line["score_mean"] for line in reversed(lines) if line["score_mean"] is not None)


def table(results: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    target = results["target"]
    mark = f"{target:.2f}" if target is not None else "-"
    lines = [
        f"**{results['title']}** on `{results['env']}`, {results['budget']} a run.",
        "",
        f"| | seeds | final score (95 %) | steps to {mark} | of the reference's | hours to {mark} | steps/s | "
        "paper: score | paper: steps |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for setting, row in results["settings"].items():
        paper = row["paper"]
        cells = [
            row["label"] + (" (reference)" if setting == results["reference"] else ""),
            seeds(row["finished"]),
            f"{row['score']:.2f} ({row['interval'][0]:.2f} to {row['interval'][1]:.2f})",
            number(row["steps_to_target"], ",.0f", "not reached"),
            number(row["ratio"], ".2f"),
            number(row["seconds_to_target"] and row["seconds_to_target"] / 3600, ".2f"),
            number(row["steps_per_second"], ",.0f"),
            number(paper.get("score"), "g"),
            number(paper.get("ratio"), ".2f"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Medians over seeds. The score is the mean of the last 100 episodes' raw rewards.", results["paper"]]
    return "\n".join(lines) + "\n"


def seeds(finished: Sequence[bool]) -> str:
    """How many runs there are, and how many of them have not finished."""
    unfinished = len(finished) - sum(finished)
    return str(len(finished)) + (f", {unfinished} unfinished" if unfinished else "")


def number(value: float | None, form: str, missing: str = "-") -> str:
    """A cell of a table."""
    return missing if value is None else format(value, form)


def write(
    experiment: LearningExperiment,
    logdir: Path,
    width: int = 1,
    numbers: Callable[[LearningExperiment, Path], dict[str, Any]] = measure,
    text: Callable[[dict[str, Any]], str] = table,
) -> dict[str, Any]:
    """Writes `EXPERIMENT.png`, `.json` and `.md` into the folder of runs, and returns the numbers.

    Args:
      width: of the curves' moving mean, in lines of metrics.
      numbers: of the experiment.
      text: them as Markdown.

    Raises:
      ConfigError: no run has anything to show yet.
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
        title=f"{experiment.title}\n{results['env']}, {results['budget']} a run",
        note=f"Line: {curves.STATISTIC}. {experiment.shows}",
        width=width,
    )
    return results


def write_games(experiment: GamesExperiment, logdir: Path, width: int = 1) -> dict[str, Any]:
    """Like `write`, of an experiment on several games: a panel of the picture and a table for each game with a score.

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
        raise ConfigError(f"no run of {experiment.name} in {logdir} has a score yet, which an episode's end gives")
    whole = {"experiment": experiment.name, "title": experiment.title, "paper": experiment.shows, "games": results}
    (logdir / f"{experiment.name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    tables = [table(found | {"paper": ""}) for found in results.values()]
    text = "\n".join([f"**{experiment.title}**\n", *tables, experiment.shows])
    (logdir / f"{experiment.name}.md").write_text(text + "\n")
    note = f"Line: {curves.STATISTIC}. {experiment.shows}"
    curves.draw(drawn, logdir / f"{experiment.name}.png", title=experiment.title, note=note, width=width)
    return whole
