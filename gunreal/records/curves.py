"""Learning curves: reading them, merging seeds and drawing them.

Seeds are merged to a median with a percentile bootstrap interval (Efron 1979; recommended for few runs by Agarwal et
al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice").
"""

from __future__ import annotations

import contextlib
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gunreal.config.packages import package
from gunreal.config.schema import ConfigError
from gunreal.records import metrics, statistics
from gunreal.records.writable import check_writable

LABELS = {
    "step": "agent steps",
    "eval_step": "agent steps",
    "score_mean": "score (mean of the last 100 episodes)",
    "score_max": "score (best of the last 100 episodes)",
    "pps": "agent steps acted a second",
    "tps": "agent steps trained on a second",
    "agents": "agents (N_A)",
    "predictors": "predictors of a queue (N_P)",
    "trainers": "trainers (N_T)",
}
STATISTIC = (
    "median over seeds; band: its 95 % bootstrap interval (of up to 5 seeds: their range); thin: single runs, "
    "beyond what all seeds have"
)
# Okabe and Ito's colors (2008), which people with color blindness can tell apart. Their yellow is too light for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_POINTS = 500
_TAIL = 0.02  # share of the common part; runs overshoot their budget by a few steps, which need not be shown
Points = tuple[np.ndarray, np.ndarray]


class Curve(NamedTuple):
    """What is drawn: `x` and `y`, float64 `[n]`. Several runs also have a band, and parts beyond their common one.

    Attributes:
      low: lower end of the band around `y`, `[n]`, or None.
      high: its upper end.
      runs: number of runs.
      tails: `(x, y)` of single runs after the end of the shortest.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    runs: int = 1
    tails: tuple[Points, ...] = ()


class Panel(NamedTuple):
    """A pair of axes: the keys of its metrics, its curves, and a title."""

    x: str
    y: str
    curves: Sequence[Curve]
    title: str = ""


def read(run_dir: Path, x: str, y: str, width: int = 1) -> Curve:
    """The smoothed curve of a run. Lines of metrics in which a value is null are left out.

    Args:
      x: key of `metrics.jsonl` for the horizontal axis.
      y: key of `metrics.jsonl` for the vertical axis.
      width: width of the moving mean, in lines of metrics.

    Raises:
      ConfigError: the run has no such values.
    """
    found = metrics.lines(run_dir)
    points = [(line[x], line[y]) for line in found if line.get(x) is not None and line.get(y) is not None]
    if not points:
        known = ", ".join(sorted({key for line in found for key, value in line.items() if value is not None}))
        raise ConfigError(f"{run_dir} has no values of {y} over {x}; it has {known or 'none at all yet'}")
    try:
        xs, ys = np.array(points, np.float64).T
    except ValueError:
        raise ConfigError(f"{y} over {x} of {run_dir} are not all numbers; name others with --x and --y") from None
    return Curve(run_dir.name, xs, smooth(ys, width))


def steps_of(y: str) -> str:
    """The key of the agent steps at which a value was measured."""
    return "eval_step" if y.startswith("eval_") else "step"


def check_smoothing(width: int) -> None:
    """Raises ConfigError if `width` cannot be the width of a centered moving mean."""
    if width < 1 or width % 2 == 0:
        raise ConfigError(f"--smooth is {width}, but must be an odd number of points, 1 or more")


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Centered moving mean over `width` (odd) points, and over fewer at the ends. Shapes `[n]` and `[n]`."""
    half = min(width // 2, len(values))
    sums = np.cumsum(np.concatenate(([0.0], values)))
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    start = np.maximum(np.arange(len(values)) - half, 0)
    return (sums[stop] - sums[start]) / (stop - start)


def merge(label: str, members: Sequence[Curve]) -> list[Curve]:
    """One curve of several runs over their common part, or the curves themselves if there is none."""
    first, last = max(curve.x[0] for curve in members), min(curve.x[-1] for curve in members)
    if len(members) == 1:
        return [members[0]._replace(label=label)]
    if first >= last:
        return [curve._replace(label=f"{label} ({curve.label})") for curve in members]
    x = np.unique(np.concatenate([curve.x for curve in members]).clip(first, last))
    x = x[np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))]
    y = np.array([np.interp(x, curve.x, curve.y) for curve in members])
    tails = tuple(_tail(curve, last) for curve in members if curve.x[-1] - last > _TAIL * (last - first))
    band = statistics.interval(lambda runs: np.median(runs[0], axis=0), [y])
    return [Curve(label, x, np.median(y, axis=0), *band, len(members), tails)]


def _tail(curve: Curve, start: float) -> Points:
    behind = curve.x > start
    joint = np.interp(start, curve.x, curve.y)
    return np.append(start, curve.x[behind]), np.append(joint, curve.y[behind])


def panels(groups: Mapping[str, Sequence[Path]], axes: Iterable[tuple[str, str]], width: int = 1) -> list[Panel]:
    """A panel for each pair of keys in `axes`, with one curve for each group of runs.

    Raises:
      ConfigError: a run has no such values.
    """
    drawn = []
    for x, y in axes:
        runs = {label: [read(path, x, y, width) for path in paths] for label, paths in groups.items()}
        drawn.append(Panel(x, y, [curve for label, members in runs.items() for curve in merge(label, members)]))
    return drawn


def check_matplotlib() -> None:
    """Raises ConfigError if matplotlib is not installed."""
    package("matplotlib", "pictures need matplotlib; run pip install 'gunreal[plot]'")


def draw(drawn: Sequence[Panel], out: Path, title: str = "", note: str = "", width: int = 1) -> None:
    """Writes the panels side by side as one picture, in the format of its suffix.

    Args:
      note: text below the panels. Long lines are wrapped.
      width: width of the moving mean with which the curves were smoothed. The label of the axis states it.

    Raises:
      ConfigError: its format is missing or unknown, or it cannot be written.
    """
    if not out.suffix:  # matplotlib would append one, and the caller would report another file
        raise ConfigError(f"{str(out)!r} has no suffix, which names the format of the picture; write FILE.png")
    check_writable(out, "the picture ")
    columns = len(drawn)
    size = (8 if columns == 1 else 6 * columns, 5)  # inches
    with picture(columns, size, out, note) as (figure, row):
        styles = _styles(drawn)
        for axes, panel in zip(row, drawn, strict=True):
            _draw_panel(axes, panel, width, styles)
        entries = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in row]
        shown = {name: line for pairs in entries for line, name in pairs}  # every curve once, in whichever panels it is
        # The legend carries the title, because the layout reserves no space for a title above a legend.
        legend = figure.legend(
            shown.values(), shown, loc="outside upper center", ncols=size[0] // 4, frameon=False, title=title or None
        )
        legend.get_title().set(fontsize=12, multialignment="center")


@contextlib.contextmanager
def picture(columns: int, size: tuple[float, float], out: Path, note: str = "") -> Iterator[tuple[Any, Any]]:
    """Makes a figure with axes side by side, `size` in inches, and writes it to `out` at the end, with a note below."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    style["text.parse_math"] = False  # names of runs may contain dollar signs
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")  # not pyplot's, which belongs to the caller's program
        yield figure, figure.subplots(1, columns, squeeze=False)[0]
        if note:
            below = textwrap.fill(note, int(14.5 * size[0]), break_on_hyphens=False)
            figure.supxlabel(below, fontsize=8, color="#444444", x=0.01, ha="left")
        try:
            figure.savefig(out, dpi=150)
        except (OSError, ValueError) as error:  # such as of an unknown format
            raise ConfigError(str(error)) from error


def _styles(drawn: Iterable[Panel]) -> dict[str, tuple[str, str]]:
    """For the label of every curve its name in the legend and its color, which are the same in all panels."""
    runs: dict[str, list[int]] = {}
    for panel in drawn:
        for curve in panel.curves:
            runs.setdefault(curve.label, []).append(curve.runs)
    colors = itertools.cycle(COLORS)
    return {label: (_name(label, found), next(colors)) for label, found in runs.items()}


def _name(label: str, runs: Sequence[int]) -> str:
    label = f"\u200b{label}" if label.startswith("_") else label  # of which matplotlib shows none
    least, most = min(runs), max(runs)  # panels may have different numbers of seeds
    if most == 1:
        return label
    return f"{label}, {most} seeds" if least == most else f"{label}, {least} to {most} seeds"


def _draw_panel(axes: Any, panel: Panel, width: int, styles: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.ticker import EngFormatter

    scale, label = _x_axis(panel)
    for curve in panel.curves:
        name, color = styles[curve.label]
        is_point = len(curve.x) == 1  # of which a line and an area would show nothing
        axes.plot(curve.x / scale, curve.y, color=color, label=name, linewidth=1.8, marker="o" if is_point else None)
        if curve.low is not None and curve.high is not None:
            if is_point:
                axes.vlines(curve.x / scale, curve.low, curve.high, color=color, linewidth=1.2)
            else:
                axes.fill_between(curve.x / scale, curve.low, curve.high, color=color, alpha=0.18, linewidth=0)
        for x, y in curve.tails:
            axes.plot(x / scale, y, color=color, linewidth=0.8, alpha=0.7)
    smoothing = f",\nmoving mean over {width} lines of metrics" if width > 1 else ""
    axes.set(xlabel=label, ylabel=LABELS.get(panel.y, panel.y) + smoothing, title=panel.title)
    axes.set_xlim(left=0)
    if panel.x != "seconds":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="#000000", alpha=0.12, linewidth=0.6)


def _x_axis(panel: Panel) -> tuple[float, str]:
    """What the values are divided by, and the axis' label with the unit."""
    if panel.x != "seconds":
        return 1.0, LABELS.get(panel.x, panel.x)
    longest = max(float(curve.x[-1]) for curve in panel.curves)
    scale, unit = next(
        ((s, u) for s, u in ((3600.0, "hours"), (60.0, "minutes")) if longest >= 2 * s), (1.0, "seconds")
    )
    return scale, f"training time ({unit})"
