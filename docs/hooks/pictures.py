"""Draws the pictures of `docs/results` that come from the CSV files there: `python docs/hooks/pictures.py`."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gunreal.records.curves import COLORS
from gunreal.records.human import GAMES

DOCS = Path(__file__).parents[1]


def read(name: str, **cells: str) -> list[dict[str, str]]:
    """The rows of a file that have these cells."""
    with (DOCS / "results" / name).open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[column] == cell for column, cell in cells.items())]


def pong(axes: Any) -> None:
    """Every run of the first command whose points are known, up to a score of 18."""
    for weights, color in zip(("held", "newest"), COLORS, strict=False):
        label: str | None = f"{weights} weights"
        for row in read("pong.csv", weights=weights, setting="defaults", tasks="pc,vr,rp"):
            points = [(float(name[:-1]), float(row[name])) for name in ("0.2M", "0.3M", "0.4M", "0.5M") if row[name]]
            if row["steps to 18"].endswith("M"):
                points.append((float(row["steps to 18"][:-1]), 18.0))
            if len(points) > 1:
                axes.plot(*zip(*points, strict=True), color=color, label=label, marker="o", markersize=3, linewidth=1.2)
                label = None
    axes.axhline(18, color="#000000", linewidth=0.6, linestyle="--")
    axes.set(xlabel="million agent steps", ylabel="mean score of the last 100 games")


def maze(axes: Any) -> None:
    """Median and range of the seeds with the whole budget and a falling entropy weight."""
    columns = {"0.24M": 0.24, "0.41M": 0.41, "0.49M": 0.49, "0.6M": 0.6, "0.8M": 0.8, "at the end": 1.0}
    steps = list(columns.values())
    for (tasks, flags), color in zip((("base", ""), ("spr,vr,rp", "--task spr.weight=2 ")), COLORS, strict=False):
        runs = read("mazes.csv", objective="ppo", setting=f"{flags}--entropy_end 0", tasks=tasks, steps="1M")
        scores = [[float(row[column]) for row in runs] for column in columns]
        axes.plot(steps, list(map(statistics.median, scores)), color=color, label=tasks, marker="o")
        axes.fill_between(steps, list(map(min, scores)), list(map(max, scores)), color=color, alpha=0.18, linewidth=0)
    axes.set(xlabel="million agent steps", ylabel="mean score of the last 100 games")


def tasks(axes: Any) -> None:
    """Every run in the static maze after 0.41M steps."""
    runs = [row for row in read("mazes.csv", objective="ppo") if row["0.41M"] and row["setting"] in _OPTIONS]
    names = list(dict.fromkeys(row["tasks"] for row in runs))[::-1]
    for row in runs:
        axes.plot(float(row["0.41M"]), names.index(row["tasks"]), "o", color=COLORS[0], alpha=0.6)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="mean score after 0.41M agent steps")


def atari(axes: Any) -> None:
    """Human-normalized scores of games after 1M steps, means over seeds."""
    names: dict[str, list[float]] = {}
    for game in dict.fromkeys(row["game"] for row in read("atari.csv", setting="defaults")):
        reference = GAMES[game.replace(" ", "")]
        for system in ("base", "pc,vr,rp"):
            scores = [float(row["1M"]) for row in read("atari.csv", game=game, setting="defaults", system=system)]
            names.setdefault(game, []).append(reference.normalized(statistics.mean(scores)))
    for place, (system, color) in enumerate(zip(("base", "pc,vr,rp"), COLORS, strict=False)):
        heights = [-row + 0.2 - 0.4 * place for row in range(len(names))]
        axes.barh(heights, [values[place] for values in names.values()], 0.4, color=color, label=system)
    axes.set(yticks=[-row for row in range(len(names))], yticklabels=list(names))
    axes.set(xlabel="human-normalized score after 1M steps")


def bars(file: str, name: str, value: str, label: str) -> Callable[[Any], None]:
    """One bar for each row of a file, the first row on top."""

    def draw(axes: Any) -> None:
        rows = read(file)[::-1]
        axes.barh([row[name] for row in rows], [float(row[value]) for row in rows], color=COLORS[0])
        axes.set(xlabel=label)

    return draw


_OPTIONS = ("defaults", "--task spr.weight=2", "--env_args depth=true")
PICTURES: dict[str, tuple[Callable[[Any], None], float]] = {  # and their heights in inches
    "pong": (pong, 3.6),
    "maze-ppo": (maze, 3.6),
    "tasks": (tasks, 3.6),
    "atari": (atari, 3.6),
    "atari-short": (bars("atari-short.csv", "setting", "IQM after 0.1M steps", "human-normalized IQM"), 2.4),
    "speed": (bars("speed.csv", "system", "agent steps per second", "agent steps per second on two cores"), 2.4),
    "emulator": (bars("emulator-speed.csv", "game", "gunreal / ale-py", "times the agent steps of ale-py"), 5),
}


def main() -> None:
    """Draws all pictures."""
    for name, (draw, height) in PICTURES.items():
        figure = Figure(figsize=(6.5, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#000000", alpha=0.12, linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
        figure.savefig(DOCS / "images" / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
