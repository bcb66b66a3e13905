"""Reports of speed experiments: a figure, the results as JSON, and a table with the paper's numbers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import summary

from experiments import speed_rounds
from experiments.speed import QUANTITIES, Quantity, SpeedExperiment
from gunreal.config.schema import ConfigError
from gunreal.records import curves


def measure(experiment: SpeedExperiment, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the results of an experiment, ready for JSON.

    "settings" has for each setting:

    - "values", the medians over its rounds,
    - "ranges", the lowest and highest values of the rounds,
    - "ratios", its rates divided by those of the reference setting "against",
    - "paper_ratios", the same ratios in the paper.

    Args:
      experiment: the experiment.
      saved: the measurements, as returned by `speed_rounds.read`.

    Raises:
      ConfigError: none of the settings has been measured yet.
    """
    known = {name: saved["settings"][name] for name in experiment.settings if name in saved["settings"]}
    if not known:
        raise ConfigError(f"no setting of {experiment.name} has been measured yet; run the command without --draw")
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
    """Returns the results as a Markdown table."""
    settings = results["settings"].values()
    papers = list(dict.fromkeys(key for row in settings for key in row["paper"]))
    titles = ["setting", *(QUANTITIES[key].label for key in experiment.columns), "rounds"]
    titles += [f"paper: {QUANTITIES[key].label if key in QUANTITIES else key}" for key in papers]
    lines = [f"**{results['title']}** on `{results['env']}`", "", _line(titles), "|" + "---|" * len(titles)]
    for row in settings:
        (found, wanted), unbalanced = row["agents"], row["rounds"] - row["balanced"]
        cells = [row["label"] + (f" (only {found:.0f} of {wanted} agents fit into memory)" if found < wanted else "")]
        cells += [_cell(key, row["values"], row["ratios"]) for key in experiment.columns]
        cells.append(str(row["rounds"]) + (f", {unbalanced} not balanced" if unbalanced else ""))
        cells += [_cell(key, row["paper"], row["paper_ratios"]) for key in papers]
        lines.append(_line(cells))
    return "\n".join([*lines, "", _about(results), results["paper"]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(key: str, values: Mapping[str, float | None], ratios: Mapping[str, float]) -> str:
    value = values.get(key)
    text = "-" if value is None else format(value, QUANTITIES[key].form if key in QUANTITIES else ",.0f")
    return text + (f" ({ratios[key]:.2f})" if key in ratios else "")


def _about(results: Mapping[str, Any]) -> str:
    settings = results["settings"]
    others = list(dict.fromkeys(settings[row["against"]]["label"] for row in settings.values() if row["ratios"]))
    fraction = f"The numbers in brackets are relative to {', '.join(others)}. " if others else ""
    agents = f" with {results['agents']} agents" if results["agents"] else ""
    where = f"{results['cores']} cores of {results['processor']} and {results['device']}"
    return f"Medians over rounds of {2 * results['seconds']:g} s{agents}, on {where}. {fraction}".strip()


def write(experiment: SpeedExperiment, path: Path) -> dict[str, Any]:
    """Writes `EXPERIMENT.png`, `.json` and `.md` beside the measurements, and returns the results.

    Args:
      experiment: the experiment.
      path: the file of the measurements.

    Raises:
      ConfigError: nothing has been measured yet.
      OSError: a file can't be written.
    """
    results = measure(experiment, speed_rounds.read(path))
    out = path.parent / experiment.name  # with_suffix needs a name without a dot
    out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(experiment, results))
    title, note = f"{results['title']}\n{results['env']}", f"{_about(results)} {results['paper']}"
    if experiment.axis:
        curves.draw(
            lines(experiment, results), out.with_suffix(".png"), title, f"Bands show the range of the rounds. {note}"
        )
    else:
        _draw_bars(experiment, results, out.with_suffix(".png"), title, note)
    return results


def lines(experiment: SpeedExperiment, results: Mapping[str, Any]) -> list[curves.Panel]:
    """Returns the panels over the experiment's axis. Settings that differ only in this field form one curve."""
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
            panel.barh(places, values, 0.7, color=curves.COLORS[0])
            for place, row, value in zip(places, rows, values, strict=True):
                low, high = row["ranges"][key] or (value, value)
                panel.plot((low, high), (place, place), color="black", linewidth=1.5)
                panel.text(max(value, high), place, f"  {_cell(key, row['values'], row['ratios'])}", va="center")
            panel.set_yticks(places, [row["label"] for row in rows] if panel is axes[0] else [""] * len(rows))
            panel.set(xlabel=f"{QUANTITIES[key].label} (line: range of the rounds)")
            panel.margins(x=0.25)
