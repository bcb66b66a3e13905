"""How fast does gunreal train on this machine, and how close is that to the limit set by its parts?

  python tools/benchmark.py --env ALE/Breakout-v5
  python tools/benchmark.py --tune --tasks pc,vr,rp

The benchmark measures four rates in agent steps per second, with and without auxiliary tasks:
  environments  stepping all environments on all cores, with nothing else running
  predictions   policy and value, at the system's mean batch size and at other batch sizes
  training      updates with all tasks, at the system's training batch size
  whole system  acting and training together, as in a normal run

The limit is the rate that the system would reach without any overhead. On a CPU it is the number of cores divided by
the CPU time that the three parts need per agent step. With a GPU it is min(environments, 1 / (1/predictions +
1/training)). It does not include the bootstrap predictions of the tasks.

Rounds alternate between the sets of tasks, so that other load on the machine affects all of them equally. A round is
balanced if the rates of acting and training differ by at most 5 %. Only balanced rounds count if there are any.

The report also shows waiting times of agents, batch sizes, queue lengths, policy lag, memory, and for each agent step
the bytes moved and the CPU time used. A profile shows where the Python threads of the server spend their time.

With --tune, the program searches for the fastest settings instead and writes them to a file for --config.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, check_positive, check_processes, check_writable, say, with_effect
from measuring import measure, summary, tune
from measuring.machine import machine

from gunreal.config import plugins
from gunreal.config.schema import Config, ConfigError
from gunreal.learning import devices
from gunreal.tasks.registry import TASK
from gunreal.train import prepare

BASE = "base"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """Returns the options of this program and the training configuration.

    `options.given` contains the fields of the configuration that were given on the command line.

    Raises:
      ConfigError: a bad option or flag.
    """
    parser = Parser("benchmark.py", __doc__)
    parser.add_argument(
        "--task_sets",
        default="",
        help='space-separated sets of tasks, such as "base pc,vr,rp" (default: base and --tasks, or pc,vr,rp)',
    )
    parser.add_argument(
        "--seconds", type=float, default=None, help="length of a measurement, in seconds (default: 8; with --tune: 6)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the medians are shown (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the numbers of all rounds (default: none)")
    parser.add_argument("--tune", action="store_true", help="search for the settings with the highest training rate")
    parser.add_argument(
        "--lag", type=float, default=10.0, help="highest mean policy lag with --tune, in updates (default: 10)"
    )
    parser.add_argument(
        "--toml", type=Path, default=Path("tuned.toml"), help="output file of --tune (default: tuned.toml)"
    )
    options, config, extras = parser.parse_with_training_flags(argv)
    options.given = extras.given
    options.seconds = (6.0 if options.tune else 8.0) if options.seconds is None else options.seconds
    _check(options, config, resumed=extras.resume is not None)
    return options, dataclasses.replace(config, steps=10**9, name="")


def _check(options: argparse.Namespace, config: Config, resumed: bool) -> None:
    for name in ("seconds", "rounds", "lag"):
        check_positive(name, getattr(options, name))
    if options.tune and (options.task_sets or options.json):
        raise ConfigError("--tune searches for one set of tasks; leave out --task_sets and --json")
    if resumed:
        raise ConfigError(
            "--resume is not supported here; use --config runs/NAME/config.toml to measure a run's settings"
        )
    if config.scheduler != "off":
        raise ConfigError("--scheduler can't be measured here; leave it out, or set --scheduler off")
    check_processes(config)
    check_writable(options.toml if options.tune else options.json)


def variants(config: Config, task_sets: str) -> dict[str, Config]:
    """Returns a configuration for each set of tasks. Options of a task are kept where the task is used.

    Raises:
      ConfigError: a task can't be loaded.
    """
    names = task_sets.split() or [BASE, ",".join(config.tasks) or "pc,vr,rp"]
    found = {}
    for name in names:
        tasks = () if name == BASE else tuple(name.split(","))
        with devices.preferred(config.backend):
            used = {plugins.load_class(TASK, task).name for task in tasks}  # tasks may be classes, options have names
        options = {task: options for task, options in config.task.items() if task in used}
        found[name] = dataclasses.replace(config, tasks=tasks, task=options)
    return with_effect(found)


def describe(config: Config, row: summary.Row, about: dict[str, Any], options: argparse.Namespace) -> str:
    """Describes the measured system, the machine and the measurement in one line."""
    device = "a GPU" if row["gpu"] else "the CPU"
    return (
        f"{config.env}, {row['agents']:.0f} agents in {row['processes']:.0f} processes, "
        f"predictors {config.predictors}, trainers {config.trainers}; "
        f"{config.backend} on {device}, {config.precision}; {about['cores']} cores of {about['processor']}; "
        f"medians of {options.rounds} rounds of {options.seconds:g} s, {about['date']}"
    )


def benchmark(options: argparse.Namespace, config: Config) -> int:
    """Measures all sets of tasks, prints and writes the results, and returns the exit code."""
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
            note = "" if row["balanced"] else f", not balanced: {row['tps']:,.0f} steps/s trained"
            say(f"round {number + 1} of {options.rounds}, {name}: {found}{note}")
    results = {name: summary.medians(of) for name, of in rows.items()}
    title = describe(config, next(iter(results.values())), about, options)
    print("\n" + summary.table(results, title))
    unbalanced = [name for name, row in results.items() if not row["balanced"]]
    if unbalanced:
        say(f"no round of {', '.join(unbalanced)} was balanced, so all rounds count; use a larger --seconds")
    if options.json:
        whole = {"about": about | {"title": title}, "sets": results, "rounds": rows}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a measurement failed, 2 for bad input, 130 if interrupted."""
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
