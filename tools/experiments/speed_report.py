"""What an experiment about speed has come to: its picture, its numbers as JSON, and as a table beside the paper's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import summary

from experiments import report, speed_rounds
from experiments.speed import QUANTITIES, Quantity, SpeedExperiment
from gunreal.config.schema import ConfigError
from gunreal.records import curves


def measure(experiment: SpeedExperiment, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of an experiment, for JSON.

    Of each setting: "values", medians over its rounds; "ranges", the lowest and the highest of what they are of;
    "ratios" of its rates to those of the setting "against" which it is measured, and the "paper_ratios" of what the
    paper has of both.

    Args:
      saved: see `speed_rounds.read`.

    Raises:
      ConfigError: there is none of them yet.
    """
    known = {name: saved["settings"][name] for name in experiment.settings if name in saved["settings"]}
    if not known:
        raise ConfigError(f"nothing has been measured of {experiment.name} with {', '.join(experiment.settings)}")
    rows: dict[str, Any] = {}
    for name, of in known.items():
        median, setting = summary.medians(of["rows"]), experiment.settings[name]
        rows[name] = {
            "label": setting.label,
            "agents": [median["agents"], of["config"]["agents"]],
            "values": {key: _value(QUANTITIES[key], median) for key in experiment.columns},
            "ranges": {key: _range(QUANTITIES[key], summary.counting(of["rows"])) for key in experiment.columns},
            "rounds": median["rounds"],
            "balanced": median["balanced"],
            "against": experiment.against.get(name),
            "paper": dict(setting.paper),
        }
    for row in rows.values():
        other: dict[str, Any] = rows.get(row["against"], {"values": {}, "paper": {}})
        for ratios, numbers in (("ratios", "values"), ("paper_ratios", "paper")):
            pairs = {key: (value, other[numbers].get(key)) for key, value in row[numbers].items() if _is_rate(key)}
            row[ratios] = {key: value / reference for key, (value, reference) in pairs.items() if value and reference}
    about = {"experiment": experiment.name, "title": experiment.title, "paper": experiment.shows}
    about |= {name: saved[name] for name in ("seconds", "processor", "cores")}
    first = next(iter(known.values()))
    about |= {"env": first["config"]["env"], "device": "a GPU" if first["rows"][0]["gpu"] else "no GPU"}
    agents = {of["config"]["agents"] for of in known.values()}
    return about | {"agents": agents.pop() if len(agents) == 1 else None, "settings": rows}


def _is_rate(key: str) -> bool:
    return key not in QUANTITIES or QUANTITIES[key].relative


def _value(quantity: Quantity, row: Mapping[str, Any]) -> float | None:
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
        return float(quantity.of(row))
    return None


def _range(quantity: Quantity, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    values = [value for row in rows if (value := _value(quantity, row)) is not None]
    return [min(values), max(values)] if values else None


def table(experiment: SpeedExperiment, results: Mapping[str, Any]) -> str:
    """The numbers as Markdown."""
    settings = results["settings"].values()
    papers = list(dict.fromkeys(key for row in settings for key in row["paper"]))
    titles = ["", *(QUANTITIES[key].label for key in experiment.columns), "rounds"]
    titles += [f"paper: {QUANTITIES[key].label if key in QUANTITIES else key}" for key in papers]
    lines = [f"**{results['title']}** on `{results['env']}`", "", _line(titles), "|" + "---|" * len(titles)]
    for row in settings:
        (found, wanted), unbalanced = row["agents"], row["rounds"] - row["balanced"]
        cells = [row["label"] + (f" (memory for {found:.0f} of {wanted} agents)" if found < wanted else "")]
        cells += [_cell(key, row["values"], row["ratios"]) for key in experiment.columns]
        cells.append(str(row["rounds"]) + (f", {unbalanced} not balanced" if unbalanced else ""))
        cells += [_cell(key, row["paper"], row["paper_ratios"]) for key in papers]
        lines.append(_line(cells))
    return "\n".join([*lines, "", _about(results), results["paper"]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(key: str, values: Mapping[str, float | None], ratios: Mapping[str, float]) -> str:
    text = report.number(values.get(key), QUANTITIES[key].form if key in QUANTITIES else ",.0f")
    return text + (f" ({ratios[key]:.2f})" if key in ratios else "")


def _about(results: Mapping[str, Any]) -> str:
    settings = results["settings"]
    others = list(dict.fromkeys(settings[row["against"]]["label"] for row in settings.values() if row["ratios"]))
    fraction = f"In brackets: divided by that of {', '.join(others)}. " if others else ""
    agents = f"{results['agents']} agents. " if results["agents"] else ""
    where = f"{results['device']} and {results['cores']} cores of {results['processor']}"
    return f"{agents}Medians over rounds of {2 * results['seconds']:g} s, with {where}. {fraction}".strip()


def write(experiment: SpeedExperiment, path: Path) -> dict[str, Any]:
    """Writes `EXPERIMENT.png`, `.json` and `.md` beside the rows, and returns the numbers.

    Args:
      path: of the rows.

    Raises:
      ConfigError: nothing has been measured yet.
      OSError: a file can't be written.
    """
    results = measure(experiment, speed_rounds.read(path))
    out = path.parent / experiment.name  # its name has no dot, or a suffix would be lost
    out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(experiment, results))
    title, note = f"{results['title']}\n{results['env']}", f"{_about(results)} {results['paper']}"
    if experiment.axis:
        curves.draw(lines(experiment, results), out.with_suffix(".png"), title, f"Band: range of the rounds. {note}")
    else:
        _draw_bars(experiment, results, out.with_suffix(".png"), title, note)
    return results


def lines(experiment: SpeedExperiment, results: Mapping[str, Any]) -> list[curves.Panel]:
    """Panels over the experiment's axis: a curve for all settings that differ in nothing else, its band the range."""
    groups: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for name, row in results["settings"].items():
        fields = dict(experiment.settings[name].fields)
        place = fields.pop(experiment.axis)
        label = ", ".join(f"{field} {value}" for field, value in fields.items())
        groups.setdefault(label, []).append((place, row))
    panels = []
    for key in experiment.panels:
        drawn = []
        for label, members in groups.items():
            points = [(place, row["values"][key], *row["ranges"][key]) for place, row in members if row["ranges"][key]]
            if points:
                x, y, low, high = np.array(sorted(points), np.float64).T
                drawn.append(curves.Curve(label, x, y, low, high))
        panels.append(curves.Panel(experiment.axis, QUANTITIES[key].label, drawn))
    return panels


def _draw_bars(experiment: SpeedExperiment, results: Mapping[str, Any], out: Path, title: str, note: str) -> None:
    rows = list(results["settings"].values())
    places, columns = range(len(rows), 0, -1), len(experiment.panels)
    size = (8 if columns == 1 else 6 * columns, 2.4 + 0.45 * len(rows))  # inches
    with curves.picture(columns, size, out, note) as (figure, axes):
        figure.suptitle(title, fontsize=12)
        for panel, key in zip(axes, experiment.panels, strict=True):
            values = [row["values"][key] or 0.0 for row in rows]
            panel.barh(places, values, 0.7, color=curves.COLOURS[0])
            for place, row, value in zip(places, rows, values, strict=True):
                low, high = row["ranges"][key] or (value, value)
                panel.plot((low, high), (place, place), color="black", linewidth=1.5)
                panel.text(max(value, high), place, f"  {_cell(key, row['values'], row['ratios'])}", va="center")
            panel.set_yticks(places, [row["label"] for row in rows] if panel is axes[0] else [""] * len(rows))
            panel.set(xlabel=f"{QUANTITIES[key].label}; line: range of the rounds")
            panel.margins(x=0.25)
