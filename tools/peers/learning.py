"""Compares how soon systems reach a score, in agent steps and minutes, as a table and a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.records import curves
from gunreal.records.metrics import first_reach
from gunreal.runtime.jobs import Job

NAME = "learn"


def summarize(jobs: Mapping[str, Sequence[Job]], titles: Mapping[str, str], score: float) -> dict[str, Any]:
    """Returns the results of each system.

    "steps", "seconds", "final", "trained" and "finished" are lists with an entry for each run: the steps and seconds to
    the score (None if not reached), the final score, the steps trained, and whether the run has finished. "median" has
    the medians of steps and seconds, or None if half of the runs have not reached the score.
    """
    rows = {}
    for system, of in jobs.items():
        begun = [(job, lines) for job in of if (lines := job.lines())]
        row: dict[str, Any] = {"title": titles[system], "finished": [job.trained() for job, _ in begun]}
        for key, unit in (("step", "steps"), ("seconds", "seconds")):
            row[unit] = [first_reach(lines, score, key) for _, lines in begun]
        row["final"] = [_final(lines) for _, lines in begun]
        row["trained"] = [lines[-1]["step"] for _, lines in begun]
        row["median"] = {unit: _median(row[unit]) for unit in ("steps", "seconds")}
        rows[system] = row
    return rows


def _final(lines: Sequence[Mapping[str, Any]]) -> float | None:
    return next((line["score_mean"] for line in reversed(lines) if line["score_mean"] is not None), None)


def _median(values: Sequence[float | None]) -> float | None:
    found = float(np.median([math.inf if value is None else value for value in values])) if values else math.inf
    return found if math.isfinite(found) else None


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def markdown(rows: Mapping[str, Mapping[str, Any]], game: str, score: float) -> str:
    """Returns the results as a Markdown table."""
    heads = ("system", "runs", f"runs that reached {score:g}", "agent steps", "minutes", "final scores")
    lines = [f"**{game}: agent steps and minutes to a mean score of {score:g} over 100 games**", ""]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows.values():
        seconds = row["median"]["seconds"]
        reached = sum(step is not None for step in row["steps"])
        cells = [row["title"], str(len(row["steps"])), str(reached), _number(row["median"]["steps"], ",.0f")]
        cells.append(_number(seconds and seconds / 60, ".1f"))
        cells.append(", ".join(_number(final, ".1f") for final in row["final"]))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "The table shows medians over runs. A dash means that half of the runs have not reached the score."]
    return "\n".join(lines) + "\n"


def write(jobs: Mapping[str, Sequence[Job]], titles: Mapping[str, str], game: str, score: float, folder: Path) -> str:
    """Writes `learn.json`, `learn.md` and `learn.png` (if a run has a score). Returns the table. Raises OSError."""
    rows = summarize(jobs, titles, score)
    text = markdown(rows, game, score)
    (folder / f"{NAME}.json").write_text(json.dumps({"game": game, "score": score, "systems": rows}, indent=1) + "\n")
    (folder / f"{NAME}.md").write_text(text)
    groups = {
        titles[system]: [job.path for job in of if job.lines() and _final(job.lines()) is not None]
        for system, of in jobs.items()
    }
    groups = {label: paths for label, paths in groups.items() if paths}
    if groups:
        axes = (("seconds", "score_mean"), ("step", "score_mean"))
        curves.draw(curves.panels(groups, axes), folder / f"{NAME}.png", title=game, note=f"Line: {curves.STATISTIC}.")
    return text
