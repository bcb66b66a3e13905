"""Reports of the speed experiments about device runs: a table, a figure and the numbers as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import loads
from experiments.loads import COURSE, ENGINES, LoadExperiment, Measurement
from gunreal.config.schema import ConfigError
from gunreal.records import curves

FRAMES = 4  # in an agent step of an Atari game
Found = list[tuple[Measurement, Mapping[str, Any]]]


def write(experiment: LoadExperiment, path: Path) -> None:
    """Writes `EXPERIMENT.png`, `.md` and `.json` beside the measurements.

    Raises:
      ConfigError: nothing has been measured.
      OSError: a file cannot be written.
    """
    saved = loads.read(path)
    known = {Measurement(**loads.fields(entry)): entry["rows"] for entry in saved}
    found = [(of, summary(known[of])) for of in experiment.measurements if of in known]
    if not found:
        raise ConfigError(f"{experiment.name} has not been measured yet; run the command without --draw")
    out = path.parent / experiment.name
    about = f"Medians over rounds, on {saved[0]['machine']}. {experiment.shows}"
    out.with_suffix(".md").write_text(f"**{experiment.title}**\n\n{table(found)}\n{about}\n")
    numbers = [of._asdict() | dict(row) for of, row in found]
    out.with_suffix(".json").write_text(json.dumps({"machine": saved[0]["machine"], "rows": numbers}, indent=1) + "\n")
    curves.draw(panels(found), out.with_suffix(".png"), experiment.title, about)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The median, the lowest and the highest rate of the rounds, and other results of the last one."""
    rates = [row["steps"] for row in rows]
    return {**rows[-1], "steps": statistics.median(rates), "range": [min(rates), max(rates)], "rounds": len(rows)}


def table(found: Found) -> str:
    """Returns the results as a Markdown table. Ratios are those to the device run of the same row."""
    head = ["load", "engine", "environment", "environments", "tasks", "agent steps/s", "frames/s",
            "frames/s of each", "updates/s", "GPU use", "device run : this"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    device = {_pair(of): row["steps"] for of, row in found if of.engine == "device"}
    for of, row in found:
        atari = of.env.startswith("ALE/")
        frames = FRAMES * row["steps"]
        against = device.get(_pair(of)) if of.engine != "device" else None
        load = of.load + (f", {of.algorithm}" if of.load == "training" else "")
        lines.append([
            load, ENGINES[of.engine][0], of.env, f"{of.agents:,}", ",".join(of.tasks) or "-",
            f"{row['steps']:,.0f}", *(f"{x:,.0f}" if atari else "-" for x in (frames, frames / of.agents)),
            f"{row['updates']:,.1f}" if "updates" in row else "-",
            "{:.0f} to {:.0f} %".format(*row["gpu"]) if row.get("gpu") else "-",
            f"{against / row['steps']:.2f}" if against else "-",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _pair(of: Measurement) -> Measurement:
    return of._replace(engine="")


def panels(found: Found) -> list[curves.Panel]:
    """Returns a panel for each load over the number of environments, or for each game over the steps of a course."""
    if found[0][0].load == COURSE:
        return [_course(of, row["course"]) for of, row in found]
    return [_over_sizes(load, found) for load in dict.fromkeys(of.load for of, _ in found)]


def _course(of: Measurement, course: Sequence[Mapping[str, float]]) -> curves.Panel:
    steps, rates, resets = np.array([[at["step"], FRAMES * at["rate"], at["resets"]] for at in course]).T
    most = max(resets.max(), 1.0)
    drawn = [curves.Curve("frames/s", steps, rates)]
    drawn.append(curves.Curve("environments that end an episode, scaled", steps, resets * rates.max() / most))
    return curves.Panel("step", "frames/s", drawn, of.env)


def _over_sizes(load: str, found: Found) -> curves.Panel:
    """One curve for each engine, algorithm and set of tasks: the median over games, with a band of all of them."""
    groups: dict[str, dict[int, list[float]]] = {}
    for of, row in found:
        if of.load == load:
            words = [ENGINES[of.engine][0], of.algorithm if load == "training" else "", *of.tasks]
            groups.setdefault(", ".join(filter(None, words)), {}).setdefault(of.agents, []).append(row["steps"])
    drawn = []
    for label, sizes in groups.items():
        x, rates = zip(*sorted(sizes.items()), strict=True)
        y, low, high = (np.array([of(rate) for rate in rates]) for of in (statistics.median, min, max))
        drawn.append(curves.Curve(label, np.array(x, float), y, low, high))
    return curves.Panel("environments", "agent steps/s", drawn, load)
