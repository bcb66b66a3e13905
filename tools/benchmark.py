"""Measures how near the whole system comes to what its parts can do: `python tools/benchmark.py [training flags]`.

Four rates are measured, all in agent steps a second, without tasks and with pc,vr,rp (or what --tasks names):
  environments  all of them stepped by all cores, with nothing else running
  predictions   policy and value, at the mean batch size that the system had, and over batch sizes
  training      updates with all tasks, at the system's training batch
  whole system  acted and trained, with everything that it does
On shared cores the limit is the number of cores / (CPU time of the three parts for one agent step), which cores that
are never idle could reach. With a GPU it is min(environments, 1 / (1/predictions + 1/training)). The tasks' bootstraps,
two more predictions in t_max steps for pc and vr, are not part of the limit. Rounds alternate between the sets of
tasks, so that a noisy machine disturbs them alike. A round counts if acted and trained steps are within 5 %.

The tool also reports how long agents wait, batch sizes, queues, policy lag, bytes and CPU time of an agent step, where
the server's Python threads spend their time, and memory. With --tune it searches for the fastest settings instead, and
writes them to a file for --config.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, check_positive, say
from measuring import measure, summary, tune
from measuring.machine import machine

from gunreal.config.schema import Config, ConfigError
from gunreal.records import curves
from gunreal.train import prepare

BASE = "base"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """The tool's own options, and the configuration that the other flags make; `options.given` has its given fields.

    Raises:
      ConfigError: a bad option or flag.
    """
    parser = Parser("benchmark.py", __doc__)
    parser.add_argument(
        "--task_sets", default="", help='sets of tasks to measure, as in "base pc,vr,rp" (default: base, and --tasks)'
    )
    parser.add_argument(
        "--seconds", type=float, default=None, help="length of a measurement (default: 8; with --tune: 6)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which medians are taken (default: 3)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="file for all numbers, also those of each round (default: none)"
    )
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="file for the picture; needs matplotlib (default: none)"
    )
    parser.add_argument("--tune", action="store_true", help="search for the settings with the highest training rate")
    parser.add_argument(
        "--lag", type=float, default=10.0, help="with --tune: highest mean policy lag, in updates (default: 10)"
    )
    parser.add_argument(
        "--toml", type=Path, default=Path("tuned.toml"), help="with --tune: file to write (default: tuned.toml)"
    )
    options, config, extras = parser.parse_with_training_flags(argv)
    options.given = extras.given
    options.seconds = (6.0 if options.tune else 8.0) if options.seconds is None else options.seconds
    _check(options, config, resumed=extras.resume is not None)
    return options, dataclasses.replace(config, steps=10**9, name="")


def _check(options: argparse.Namespace, config: Config, resumed: bool) -> None:
    for name in ("seconds", "rounds", "lag"):
        check_positive(name, getattr(options, name))
    if options.tune and (options.task_sets or options.json or options.png):
        raise ConfigError("--tune is for one set of tasks, and writes --toml; leave --task_sets, --json and --png out")
    if resumed:
        raise ConfigError("nothing is resumed here; measure the run's configuration, --config runs/NAME/config.toml")
    if config.serial or config.scheduler != "off":
        raise ConfigError("what is measured has agent processes and fixed counts; leave --serial and --scheduler out")
    outputs = [options.toml] if options.tune else [path for path in (options.json, options.png) if path]
    for path in outputs:
        if (
            path.is_dir()
            or not os.access(path.resolve().parent, os.W_OK)
            or (path.exists() and not os.access(path, os.W_OK))
        ):
            raise ConfigError(f"can't write {path}; choose a file in a folder that exists and is writable")
    if options.png:
        curves.check_matplotlib()
        if options.png.suffix != ".png":
            raise ConfigError(f"--png {options.png} has to end with .png")


def variants(config: Config, task_sets: str) -> dict[str, Config]:
    """The configuration with each set of tasks, by its name; a task's options go with it."""
    names = task_sets.split() or [BASE, ",".join(config.tasks) or "pc,vr,rp"]
    found = {}
    for name in names:
        tasks = () if name == BASE else tuple(name.split(","))
        options = {task: options for task, options in config.task.items() if task in tasks}
        found[name] = dataclasses.replace(config, tasks=tasks, task=options)
    return found


def describe(config: Config, row: summary.Row, about: dict[str, Any], options: argparse.Namespace) -> str:
    """One line that says what was measured, where and how."""
    device = "a GPU" if row["gpu"] else "the CPU"
    return (
        f"{config.env}, {row['agents']:.0f} agents in {row['processes']:.0f} processes, "
        f"predictors {config.predictors}, trainers {config.trainers}; "
        f"{config.backend} on {device}, {config.precision}; {about['cores']} cores of {about['processor']}; "
        f"medians of {options.rounds} rounds of {options.seconds:g} s, {about['date']}"
    )


def benchmark(options: argparse.Namespace, config: Config) -> int:
    """Measures, prints and writes; returns the exit code."""
    chosen = variants(config, options.task_sets)
    for variant in chosen.values():
        prepare(variant)
    about = machine() | {"date": time.strftime("%Y-%m-%d"), "flags": options.given | {"task_sets": list(chosen)}}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for number in range(options.rounds):
        for name, variant in chosen.items():
            row = measure.row(variant, options.seconds)
            rows[name].append(row)
            found = f"{row['pps']:,.0f} agent steps/s, {row['share']:.2f} of the limit"
            note = "" if row["balanced"] else f", not balanced: {row['tps']:,.0f} trained"
            say(f"round {number + 1} of {options.rounds}, {name}: {found}{note}")
    results = {name: summary.medians(of) for name, of in rows.items()}
    title = describe(config, next(iter(results.values())), about, options)
    print("\n" + summary.table(results, title))
    if options.json:
        whole = {"about": about | {"title": title}, "sets": results, "rounds": rows}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    if options.png:
        summary.draw(results, about["cores"], title, options.png)
    unbalanced = [name for name, row in results.items() if not row["balanced"]]
    if unbalanced:
        say(
            f"no round of {', '.join(unbalanced)} was balanced: their medians are of all; measure longer with --seconds"
        )
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 where a measurement failed, 2 where the input was bad, 130 stopped."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        if options.tune:
            return tune.tune(config, options, machine(), say)
        return benchmark(options, config)
    except (ConfigError, measure.MeasurementFailed, OSError) as error:
        print(f"benchmark.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("benchmark.py: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
