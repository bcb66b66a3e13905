"""Draws learning curves of runs: `python tools/plot.py RUN... [--x step,seconds] [--y score_mean] [--out FILE.png]`.

Runs whose names differ only in a seed at the end (`breakout-s1`, `breakout-s2`; `pc_1`, `pc_2`) are drawn as one curve:
their median and its bootstrap interval, over the part that all of them have. `LABEL=GLOB` draws all runs that match as
one curve with that label: `plot.py base=runs/old/base* "all tasks=tasks-s?"`. It needs matplotlib.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from glob import iglob
from pathlib import Path

from common import curves

from gunreal.config import folders
from gunreal.config.schema import ConfigError

SEED = r"([-_]s|[-_]seed|_)\d{1,3}$"


def group(names: Sequence[str], logdir: str = "runs", suffix: str = SEED) -> dict[str, list[Path]]:
    """Folders of runs by the label under which they are drawn as one.

    Args:
      names: runs, or LABEL=GLOB.
      suffix: a regular expression; names that are the same without what it matches are one. Empty: none are.

    Raises:
      ConfigError: there is no such run, or `suffix` is no regular expression.
    """
    try:
        pattern = re.compile(suffix)
    except re.error as error:
        raise ConfigError(f"--group {suffix!r} is no regular expression: {error}") from error
    groups: dict[str, list[Path]] = {}
    full: dict[str, str] = {}
    for name in names:
        label, equals, glob = name.partition("=")
        if equals and not (Path(name).exists() or Path(logdir, name).exists()):
            groups.setdefault(label, []).extend(_matches(glob, logdir))
            continue
        found = folders.find(name, logdir)
        own = Path(name).name or found.name  # not the name of a link's target, which may be another experiment's
        label = pattern.sub("", own) if suffix else own
        full[label] = own
        groups.setdefault(label, []).append(found)
    return {full.get(label, label) if len(paths) == 1 else label: paths for label, paths in groups.items()}


def _matches(glob: str, logdir: str) -> list[Path]:
    """The runs that a pattern names, from here or under `logdir`."""
    for pattern in (glob, str(Path(logdir, glob))):
        found = sorted(path for path in map(Path, iglob(pattern)) if (path / folders.CONFIG).is_file())
        if found:
            return found
    raise ConfigError(f"no run matches {glob!r}, from here or in {logdir}; quote it, and check --logdir")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 2 where the input was bad."""
    parser = argparse.ArgumentParser(
        "plot.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run's folder, or its name under --logdir; LABEL=GLOB: several as one"
    )
    parser.add_argument("--logdir", default="runs", help="folder of runs (default: runs)")
    parser.add_argument(
        "--x",
        default="step,seconds",
        help="step, seconds, or other keys of metrics.jsonl: a panel for each (default: step,seconds)",
    )
    parser.add_argument("--y", default="score_mean", help="a key of metrics.jsonl (default: score_mean)")
    parser.add_argument(
        "--smooth",
        type=int,
        default=1,
        metavar="N",
        help="width of the moving mean in points, an odd number (default: 1)",
    )
    parser.add_argument(
        "--group",
        default=SEED,
        metavar="REGEX",
        help="end of names that tells seeds apart; empty: draw every run alone",
    )
    parser.add_argument("--title", default="", help="title of the picture (default: none)")
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="picture to write (default: curves.png)")
    options = parser.parse_args(argv)
    try:
        curves.check_smoothing(options.smooth)
        curves.check_matplotlib()
        groups = group(options.runs, options.logdir, options.group)
        drawn = curves.panels(groups, [(x, options.y) for x in options.x.split(",")], options.smooth)
        note = f"Line: {curves.STATISTIC}." if any(len(paths) > 1 for paths in groups.values()) else ""
        curves.draw(drawn, options.out, options.title, note, options.smooth)
    except (ConfigError, OSError, ValueError) as error:  # matplotlib: a picture format that there isn't
        print(f"plot.py: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
