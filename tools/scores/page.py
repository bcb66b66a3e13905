"""Writes the report of a comparison on Atari games: figures, a table as Markdown, and the results as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.records import curves

NAME = "atari"
_AXES = (("step", "score_mean"), ("seconds", "score_mean"))


def write(results: Mapping[str, Any], paths: Mapping[str, Mapping[str, Sequence[Path]]], folder: Path) -> None:
    """Writes `atari.json`, `atari.md`, `atari.png` and a figure `atari-GAME.png` for each game.

    Args:
      results: results of `comparison.summarize`, with "title" and the "titles" of the systems.
      paths: folders of the runs that have a score, by game and system.
      folder: the folder to write to.

    Raises:
      OSError: a file can't be written.
    """
    (folder / f"{NAME}.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / f"{NAME}.md").write_text(markdown(results, list(paths)))
    draw_aggregates(results, folder / f"{NAME}.png")
    for game, systems in paths.items():
        groups = {results["titles"][system]: runs for system, runs in systems.items()}
        curves.draw(
            curves.panels(groups, _AXES),
            folder / f"{NAME}-{game}.png",
            title=game,
            note=f"Line: {curves.STATISTIC}.",
        )


def markdown(results: Mapping[str, Any], games: Sequence[str]) -> str:
    """Returns the report as Markdown."""
    lines = [f"**{results['title']}**", "", f"![Aggregates]({NAME}.png)"]
    for kind, unit in (("steps", "agent steps"), ("minutes", "minutes of training")):
        found = results[kind]
        if not found:
            continue
        lines += [
            "",
            f"## At {found['at']:,.{0 if kind == 'steps' else 1}f} {unit}",
            "",
            *_table(found, results, games),
        ]
    lines += ["", "## Games", "", *(f"![{game}]({NAME}-{game}.png)\n" for game in games)]
    return "\n".join(lines)


def _table(found: Mapping[str, Any], results: Mapping[str, Any], games: Sequence[str]) -> list[str]:
    heads = ["system", *games, "IQM (95 % interval)", "predicted median of 57 games (95 % interval)"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for system, row in found["systems"].items():
        cells = [results["titles"][system]]
        for game in games:
            scores = row["scores"].get(game)
            cells.append(f"{np.mean(scores):,.1f} ({len(scores)})" if scores else "-")
        cells += [_share(row["iqm"]), _share(row["atari_5"])]
        lines.append("| " + " | ".join(cells) + " |")
    missing = [game for game in games if game not in found["games"]]
    lines += [
        "",
        "Scores of games are mean raw scores of the last 100 games, averaged over seeds (number of seeds in brackets). "
        "IQM is the interquartile mean of human-normalized scores over runs and games. Its interval is a stratified "
        "bootstrap interval, which needs at least two runs of every game. The median of 57 games is predicted by the "
        "regression of Atari-5.",
    ]
    if missing:
        names = ", ".join(missing)
        lines.append(f"The aggregates leave out {names}, for which not every system has a run of this length.")
    for us, others in found["improvement"].items():
        for other, chance in others.items():
            pair = " beats ".join(results["titles"][system] for system in (us, other))
            lines.append(f"- {pair} with probability {_with_interval(chance, '.2f')}.")
    return lines


def _share(value: Sequence[float] | None) -> str:
    return "-" if value is None else _with_interval(value, ".1%")


def counted(count: int, noun: str) -> str:
    """A number and its noun, such as "1 game" or "9 games"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _with_interval(numbers: Sequence[float], form: str) -> str:
    value, *ends = (format(number, form) for number in numbers)
    return f"{value} ({' to '.join(ends)})" if ends else value


def draw_aggregates(results: Mapping[str, Any], out: Path) -> None:
    """Draws the interquartile means and their intervals, at equal steps and at equal times. Raises OSError."""
    kinds = [kind for kind in ("steps", "minutes") if results[kind]]
    note = "Lines: interquartile means. Bars: 95 % stratified bootstrap intervals, which need two runs of every game."
    with curves.picture(len(kinds), (5.5 * len(kinds), 3.5), out, note) as (_, row):
        for axes, kind in zip(row, kinds, strict=True):
            found = results[kind]
            systems = [system for system in found["systems"] if found["systems"][system]["iqm"]]
            for index, system in enumerate(systems):
                value, *ends = found["systems"][system]["iqm"]
                color = curves.COLORS[index % len(curves.COLORS)]
                if ends:
                    axes.barh(index, ends[1] - ends[0], left=ends[0], color=color, alpha=0.5)
                axes.plot([value, value], [index - 0.4, index + 0.4], color=color, linewidth=2.5)
            axes.set_yticks(range(len(systems)), [results["titles"][system] for system in systems])
            axes.invert_yaxis()
            unit = f"{found['at']:,.0f} agent steps" if kind == "steps" else f"{found['at']:,.1f} minutes of training"
            games = counted(len(found["games"]), "game")
            axes.set(xlabel="human-normalized score (IQM)", title=f"{games}, after {unit}")
            axes.grid(axis="x", color="#000000", alpha=0.12, linewidth=0.6)
