"""`gunreal compare RUN...`: compares the scores of settings, each with several seeds, in one or several environments.

The first setting is the reference of the others, and of a folder the oldest one. `LABEL=GLOB` names the runs of a
setting, as in `gunreal compare "base=runs/base-s?" "tasks=runs/tasks-s?"`. Other runs, and all runs of a folder such as
that of a sweep, belong to one setting if their names differ only in the seed at the end and in the name of the
environment at the beginning.

Scores are interquartile means with 95 % stratified bootstrap intervals. They are those of the evaluations if all runs
of an environment have an `evaluation.json`, and else of the last 100 training episodes. Scores of several environments
are human-normalized. With fewer than five seeds, the verdict is "undecided" unless the intervals are disjoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gunreal.config import folders
from gunreal.config.arguments import Arguments, at_least
from gunreal.config.schema import Config, ConfigError, close_match
from gunreal.config.sweeps import short
from gunreal.plot import group
from gunreal.records import comparison, curves

_NOTE = "Line: interquartile mean over runs; band: its 95 % stratified bootstrap interval."


def compare(
    runs: Sequence[str] | Mapping[str, Sequence[str | Path]],
    *,
    score: float | None = None,
    steps: int | None = None,
    logdir: str = Config.logdir,
) -> dict[str, Any]:
    """Compares the scores of settings. The first setting is the reference of the others.

    Args:
      runs: what the command takes, or for the label of each setting the folders of its runs.
      score: a mean score, for the agent steps and minutes that runs needed to reach it.
      steps: agent steps after which runs are compared. None compares them at their ends.
      logdir: folder in which runs are looked up by name.

    Returns:
      Plain records, as `gunreal compare --json` prints them.

    Raises:
      ConfigError: a run does not exist, or has no score.
    """
    if isinstance(runs, Mapping):
        found = {label: [folders.find(str(path), logdir) for path in paths] for label, paths in runs.items()}
        return comparison.compare(found, score, steps)
    return comparison.compare(settings(runs, logdir), score, steps)


def settings(names: Sequence[str], logdir: str = Config.logdir) -> dict[str, list[Path]]:
    """The folders of runs, by the label of their setting. Raises ConfigError if a run does not exist."""
    every = [run for name in names for run in _runs(name, logdir)]
    return group(every, logdir, keep=False, named=lambda run, name: name.removeprefix(f"{_env(run)}-"))


def _env(run: Path) -> str:
    return short(folders.saved_config(run).env)


def _runs(name: str, logdir: str) -> list[str]:
    """The runs in a folder that is not a run itself, or `name`."""
    for folder in folders.places(name, logdir):
        if os.path.isdir(folder) and not (folder / folders.CONFIG).exists() and (inside := folders.runs(folder)):
            return list(map(str, inside))
    return [name]


def text(results: Mapping[str, Any], markdown: bool = False) -> str:
    """The results as tables for a terminal, or as Markdown."""
    parts = []
    for env, found in results["environments"].items():
        kind = "evaluation" if found["final"] == "evaluation" else "the last 100 training episodes"
        after = f" after {results['steps']:,} agent steps" if results["steps"] else ""
        parts += [_title(f"{env}, score of {kind}{after}", markdown), _table(_rows(found, results), markdown)]
        parts.append(_sentences(found["pairs"], markdown))
    if results["all"]:
        rows = [["setting", "human-normalized score"]]
        rows += [[label, _number(value)] for label, value in results["all"]["settings"].items()]
        parts += [_title("All environments", markdown), _table(rows, markdown)]
        parts.append(_sentences(results["all"]["pairs"], markdown))
    return "\n\n".join(filter(None, parts))


def _rows(found: Mapping[str, Any], results: Mapping[str, Any]) -> list[list[str]]:
    score = results["score"]
    rows = [["setting", "seeds", "score", "mean of the curve"]]
    rows[0] += [] if score is None else [f"steps to {score:g}", f"minutes to {score:g}"]
    for label, of in found["settings"].items():
        marks = [str(len(of["runs"]))]
        marks += [f"{count} resumed" for count in [sum(run["resumed"] for run in of["runs"])] if count]
        marks += [f"{count} unfinished" for count in [sum(not run["finished"] for run in of["runs"])] if count]
        rows.append([label, ", ".join(marks), _number(of["score"]), _number(of["area"])])
        if score is not None:
            there = sum(run["steps_to"] is not None for run in of["runs"])
            some = "" if there == len(of["runs"]) else f" ({there} of {len(of['runs'])} runs)"
            steps, minutes = of["steps_to"], of["minutes_to"]
            rows[-1] += ["not reached" + some, "-"] if steps is None else [f"{steps:,.0f}{some}", f"{minutes:,.1f}"]
    return rows


def _sentences(found: Sequence[Mapping[str, Any]], markdown: bool) -> str:
    lines = []
    for pair in found:
        words = [f"probability of improvement {_number(pair['improvement'])}"]
        if count := pair.get("pairs"):
            pairs = f"{count} pair{'s' * (count != 1)}"
            words.append(f"difference by seed {pair['difference']:+.3g} ({pairs}, p = {pair['p']:.2g})")
        lines.append(f"{pair['setting']} over {pair['reference']}: {pair['verdict']}; {'; '.join(words)}")
    return "\n".join(("- " if markdown else "") + line for line in lines)


def _number(value: Sequence[float | None] | None) -> str:
    if value is None:
        return "-"
    shown = [f"{x:,.2f}" if x is not None else None for x in value]
    return f"{shown[0]} ({shown[1]} to {shown[2]})" if shown[1] else str(shown[0])


def _title(text: str, markdown: bool) -> str:
    return f"**{text}**" if markdown else text


def _table(rows: Sequence[Sequence[str]], markdown: bool) -> str:
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    options = _parser(argv[0]).parse_args(argv[1:])
    groups = settings(options.runs, options.logdir)
    if first := options.reference:
        if first not in groups:
            hint = close_match(first, groups) or f"; it is one of {', '.join(groups)}"
            raise ConfigError(f"no setting is called {first}{hint}")
        groups = {first: groups.pop(first), **groups}
    results = comparison.compare(groups, options.score, options.steps)
    if options.plot:
        curves.check_matplotlib()
        curves.draw(comparison.panels(groups, options.steps), options.plot, note=_NOTE)
    print(json.dumps(results, indent=1) if options.json else text(results, options.markdown), flush=True)
    return 0


def _parser(program: str) -> Arguments:
    description = (__doc__ or "").partition(": ")[2]
    parser = Arguments(program, description[0].upper() + description[1:])
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run's folder, its name under --logdir, LABEL=GLOB, or a folder of runs",
    )
    add("--logdir", default=Config.logdir, help=f"folder of runs (default: {Config.logdir})")
    add("--reference", metavar="LABEL", help="setting that the others are compared with (default: the first one)")
    add("--score", type=float, metavar="X", help="show the steps and minutes to this mean score of 100 episodes")
    add("--steps", type=at_least(1), metavar="N", help="compare after so many agent steps, not at the ends of the runs")
    add("--plot", type=Path, metavar="FILE", help="picture of the learning curves to write")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object instead of a table")
    form.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    return parser
