"""`gunreal plot RUN...`: draws the learning curves of runs.

Runs whose names differ only in a seed at the end (`breakout-s1`, `breakout-s2`; `pc_1`, `pc_2`) are seeds of one curve.
The curve is their median, over the part that all of them have. The band is the range of up to five seeds, or the 95 %
bootstrap interval of the median of more. `LABEL=GLOB` draws all runs that match as one curve with that label, as in
`gunreal plot base=runs/old/base* "all tasks=tasks-s?"`. Other runs of different folders are different curves, even if
they have the same name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from glob import iglob
from pathlib import Path

from gunreal.config import folders
from gunreal.config.arguments import Arguments
from gunreal.config.schema import ConfigError
from gunreal.records import curves

SEED = r"([-_](s|seed)\d+|_\d{1,3})$"


def group(
    names: Sequence[str],
    logdir: str = "runs",
    suffix: str = SEED,
    keep: bool = True,
    named: Callable[[Path, str], str] = lambda run, name: name,
) -> dict[str, list[Path]]:
    """The folders of runs, by the label under which they are drawn as one curve.

    Args:
      names: runs, or LABEL=GLOB.
      suffix: regular expression. Names that are equal without its match are one group. Empty does not group.
      keep: whether the label of a single run keeps the match.
      named: the label of a run, from its folder and its name without the match.

    Raises:
      ConfigError: a run does not exist, or `suffix` is not a regular expression.
    """
    try:
        pattern = re.compile(suffix)
    except re.error as error:
        raise ConfigError(f"--group {suffix!r} is not a regular expression: {error}") from error
    groups: dict[tuple[Path | None, str], list[Path]] = {}  # by parent and label; those of LABEL=GLOB have no parent
    full: dict[tuple[Path | None, str], str] = {}
    for name in names:
        label, equals, glob = name.partition("=")
        if equals and not any(os.path.exists(place) for place in folders.places(name, logdir)):
            _add(groups.setdefault((None, label), []), _matches(glob, logdir))
            continue
        found = folders.find(name, logdir)
        own = Path(name).name  # not the name of a link's target, which may be another experiment's
        own = found.name if own in ("", "..") else own
        label = named(found, pattern.sub("", own) if suffix else own)
        key = _parent(name, found, logdir), label
        full[key] = own
        _add(groups.setdefault(key, []), [found])
    titled: dict[str, list[Path]] = {}
    for (parent, label), paths in groups.items():
        parents = [other for other, same in groups if same == label and other]
        alone = keep and len(paths) == 1 and (None, label) not in groups
        title = full[parent, label] if parent and alone else label
        if parent and len(parents) > 1:
            title = f"{_distinct(parent, parents)}/{title}"
        _add(titled.setdefault(title, []), paths)
    return titled


def _add(paths: list[Path], more: Iterable[Path]) -> None:
    """Adds runs, but none a second time, such as by a link to it, because it would count as another seed."""
    known = {path.resolve() for path in paths}
    for path in more:
        if (target := path.resolve()) not in known:
            known.add(target)
            paths.append(path)


def _parent(name: str, found: Path, logdir: str) -> Path:
    """The folder that holds a run, or the link to it that `name` names."""
    link = next((path for path in folders.places(name, logdir) if path.name and path.resolve() == found), found)
    return link.parent.resolve()


def _distinct(parent: Path, parents: Sequence[Path]) -> Path:
    """The end of a folder's path that tells it from the others."""
    common = Path(os.path.commonpath(parents))
    return parent.relative_to(common.parent if common in parents else common)


def _matches(glob: str, logdir: str) -> list[Path]:
    """The runs that a pattern names, from here or under `logdir`."""
    patterns = [os.path.expanduser(pattern) for pattern in (glob, Path(logdir, glob))]
    for pattern in patterns if "/" in glob else reversed(patterns):
        found = sorted(path for path in map(Path, iglob(pattern)) if (path / folders.CONFIG).is_file())
        if found:
            return found
    raise ConfigError(f"no run matches {glob!r}, from here or in {logdir}; quote it, and check --logdir")


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    options = _parser(argv[0]).parse_args(argv[1:])
    curves.check_smoothing(options.smooth)
    curves.check_matplotlib()
    groups = group(options.runs, options.logdir, options.group)
    keys = options.x or f"{curves.steps_of(options.y)},seconds"
    drawn = curves.panels(groups, [(x, options.y) for x in keys.split(",")], options.smooth)
    note = f"Line: {curves.STATISTIC}." if any(len(paths) > 1 for paths in groups.values()) else ""
    curves.draw(drawn, options.out, options.title, note, options.smooth)
    print(options.out)
    return 0


def _parser(program: str) -> Arguments:
    description = (__doc__ or "").partition(": ")[2]
    parser = Arguments(program, description[0].upper() + description[1:])
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run's folder, its name under --logdir, or LABEL=GLOB")
    add("--logdir", default="runs", help="folder of runs (default: runs)")
    add(
        "--x",
        default="",
        help="step, seconds, or other keys of metrics.jsonl, with a panel for each (default: step,seconds; for the "
        "results of evaluations eval_step,seconds)",
    )
    add("--y", default="score_mean", help="a key of metrics.jsonl (default: score_mean)")
    add("--smooth", type=int, default=1, metavar="N", help="width of the moving mean in points, odd (default: 1)")
    add(
        "--group",
        default=SEED,
        metavar="REGEX",
        help="regular expression for the end of names that differs between seeds; empty draws every run alone",
    )
    add("--title", default="", help="title of the picture (default: none)")
    add("--out", type=Path, default=Path("curves.png"), help="picture to write (default: curves.png)")
    return parser
