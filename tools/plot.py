"""Learning curves of runs: `python tools/plot.py RUN... [--x seconds] [--y score_mean] [--out FILE.png]`.

Runs whose names differ only in a seed at the end (`breakout-s1`, `breakout-s2`; `pc_1`, `pc_2`) are drawn as one: their
median, and a band from their minimum to their maximum, over the part that all of them have. matplotlib is needed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gunreal import metrics, runs
from gunreal.config import ConfigError

SEED = r"([-_]s|[-_]seed|_)\d{1,3}$"
LABELS = {"step": "agent steps", "seconds": "seconds", "score_mean": "mean score of the last 100 episodes"}


class Curve(NamedTuple):
    """What is drawn: `x`, `y` float64 `[n]`, and the band around `y`, if it is of several runs."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def read(run_dir: Path, x: str, y: str) -> Curve:
    """A run's curve; lines of metrics where either value is null are left out.

    Raises:
      ConfigError: there are no such values.
    """
    try:
        lines = metrics.read(run_dir / metrics.FILE)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run_dir / metrics.FILE} can't be read: {error}") from error
    points = [(line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None]
    if not points:
        known = ", ".join(sorted({key for line in lines for key, value in line.items() if value is not None}))
        raise ConfigError(f"{run_dir} has no values of {y} over {x}; it has {known or 'none at all yet'}")
    try:
        return Curve(run_dir.name, *np.array(points, np.float64).T)
    except ValueError:
        raise ConfigError(f"{y} over {x} of {run_dir} are not all numbers; name others with --x and --y") from None


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Centred moving mean over `width` (odd) points, of fewer at the ends."""
    half = width // 2
    sums = np.cumsum(np.concatenate(([0.0], values)))
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    start = np.maximum(np.arange(len(values)) - half, 0)
    return (sums[stop] - sums[start]) / (stop - start)


def group(curves: Iterable[Curve], suffix: str = SEED) -> list[Curve]:
    """One curve for all whose labels are the same without what `suffix`, a regular expression, matches.

    Raises:
      ConfigError: `suffix` is no regular expression.
    """
    try:
        pattern = re.compile(suffix)
    except re.error as error:
        raise ConfigError(f"--group {suffix!r} is no regular expression: {error}") from error
    groups: defaultdict[str, list[Curve]] = defaultdict(list)
    for curve in curves:
        groups[pattern.sub("", curve.label)].append(curve)
    return [curve for label, members in groups.items() for curve in _merge(label, members)]


def _merge(label: str, members: list[Curve]) -> list[Curve]:
    first, last = max(curve.x[0] for curve in members), min(curve.x[-1] for curve in members)
    if len(members) == 1 or first >= last:  # one run, or runs that have no part in common
        return members
    x = np.unique(np.concatenate([curve.x for curve in members]).clip(first, last))
    y = np.array([np.interp(x, curve.x, curve.y) for curve in members])
    return [Curve(f"{label} ({len(members)} runs)", x, np.median(y, axis=0), y.min(axis=0), y.max(axis=0))]


def draw(curves: Sequence[Curve], x: str, y: str, out: Path) -> None:
    """Writes the picture; its format follows from the name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for curve in curves:
        (line,) = axes.plot(curve.x, curve.y, label=curve.label, linewidth=1.5)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 2 where the input was bad."""
    parser = argparse.ArgumentParser("plot.py", description="Learning curves of runs, from their metrics.jsonl.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or its name under --logdir")
    parser.add_argument("--logdir", default="runs", help="folder of runs (default runs)")
    parser.add_argument("--x", default="step", help="step (default), seconds, or another key of metrics.jsonl")
    parser.add_argument("--y", default="score_mean", help="a key of metrics.jsonl (default score_mean)")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="moving mean over N points, an odd number")
    parser.add_argument("--group", default=SEED, metavar="REGEX", help="end of names that tells seeds apart; '': none")
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="picture to write (default curves.png)")
    options = parser.parse_args(argv)
    try:
        if options.smooth < 1 or options.smooth % 2 == 0:
            raise ConfigError(f"--smooth is {options.smooth}, but has to be an odd number of points, 1 or more")
        found = [read(runs.find(name, options.logdir), options.x, options.y) for name in options.runs]
        found = [curve._replace(y=smooth(curve.y, options.smooth)) for curve in found]
        draw(group(found, options.group), options.x, options.y, options.out)
    except ImportError as error:
        print(f"plot.py: {error}; pip install matplotlib", file=sys.stderr)
        return 2
    except (ConfigError, OSError, ValueError) as error:  # matplotlib: a picture format that there isn't
        print(f"plot.py: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
