"""Reproduces an experiment of the papers about speed: measures its settings and compares the results with the paper.

  python tools/reproduce.py ga3c-table2
  python tools/reproduce.py ga3c-fig3 --rounds 1 -- --entropy 0.003

The program measures every setting for some seconds in several rounds, and writes EXPERIMENT.png, EXPERIMENT.md and
EXPERIMENT.json. Training flags after -- apply to all settings. After Ctrl-C, the same command continues, and existing
measurements are not repeated. Experiments about learning are sweeps: gunreal sweep configs/sweeps/NAME.toml.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.command_line import Parser, check_positive, say, stopped
from experiments import ba3c, ba3c_report, loads, loads_report, settings, speed_report, speed_rounds
from experiments.speed import RATES, SpeedExperiment
from experiments.table import Experiment

from gunreal.config import folders
from gunreal.config.schema import ConfigError
from gunreal.records import curves

ALL: dict[str, Experiment] = {**RATES, **ba3c.ROUNDS, **loads.EXPERIMENTS}
# Options that belong to one kind of experiment, with their defaults.
_OF_RATES: dict[str, float] = {"seconds": 8, "rounds": 3}
_OF_CLUSTERS: dict[str, float] = {"seconds": 8}
_OF_LOADS: dict[str, float] = {"seconds": 3, "rounds": 1}
_KINDS: list[tuple[dict[str, float], str, type[Experiment]]] = [
    (_OF_CLUSTERS, "cluster", ba3c.ClusterExperiment),
    (_OF_LOADS, "load", loads.LoadExperiment),
    (_OF_RATES, "speed", SpeedExperiment),
]


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options and the training flags for all runs.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    options = _parser().parse_args(argv[:end])
    experiment = options.experiment = settings.choose(ALL, options.experiment, options.settings)
    own, kind = next(of for of in _KINDS if isinstance(experiment, of[2]))[:2]
    for name in _OF_RATES.keys() - own.keys():
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} can't be used with {experiment.name}, a {kind} experiment; leave it out")
    for name, default in own.items():
        given = getattr(options, name)
        if given is None:
            setattr(options, name, default)
        else:
            _check_number(name, given)
    if options.tiny and not isinstance(experiment, loads.LoadExperiment):
        raise ConfigError(f"--tiny can't be used with {experiment.name}, a {kind} experiment; leave it out")
    fixed = isinstance(experiment, loads.LoadExperiment | ba3c.ClusterExperiment)
    if fixed and (options.env or argv[end + 1 :]):
        raise ConfigError(f"{experiment.name} has fixed settings; leave out --env and flags after --")
    if isinstance(experiment, loads.LoadExperiment):
        options.experiment = loads.chosen(experiment, options.games, options.tiny)
        options.seconds = min(options.seconds, 0.3) if options.tiny else options.seconds
    elif options.games:
        raise ConfigError(f"{experiment.name} does not use several games; choose an environment with --env")
    return options, list(argv[end + 1 :])


def _parser() -> Parser:
    parser = Parser("reproduce.py", __doc__)
    kinds = {kind: [of for of in ALL.values() if isinstance(of, form)] for _, kind, form in _KINDS}
    parser.epilog = "\n\n".join(
        f"{kind} experiments:\n" + "\n".join(f"  {of.name:<15} {of.title}" for of in known)
        for kind, known in kinds.items()
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", help="name of an experiment, from the lists below")
    parser.add_argument("--env", default="", help="environment (default: the paper's)")
    parser.add_argument(
        "--games", default="", metavar="A,B", help="comma-separated games, for experiments on several (default: all)"
    )
    parser.add_argument("--settings", default="", metavar="A,B", help="comma-separated settings (default: all)")
    parser.add_argument(
        "--logdir",
        type=os.path.expanduser,
        default="",
        help="folder of runs and results (default: runs/ENVIRONMENT, or runs/EXPERIMENT)",
    )
    parser.add_argument("--draw", action="store_true", help="draw existing results, finished or not, without running")
    speed = parser.add_argument_group("options of speed, load and cluster experiments")
    speed.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="length of the warm-up, in seconds; a measurement is twice as long (default: 8). Of a load experiment, "
        "the length of a measurement (default: 3)",
    )
    speed.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="number of rounds; the medians are shown (default: 3, or 1 for a load experiment)",
    )
    speed.add_argument(
        "--tiny", action="store_true", help="8 environments of one game, to see that a load experiment works"
    )
    return parser


def _check_number(name: str, value: float) -> None:
    if isinstance(value, int):
        if value < 1:
            raise ConfigError(f"--{name} is {value}, but must be at least 1")
    else:
        check_positive(name, value)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes a folder and locks it. Raises ConfigError if it can't be made, or if another program uses it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"can't write to {folder}: {error.strerror}; choose another --logdir") from error
    with folders.locked(folder):
        yield


def measure(experiment: SpeedExperiment, options: argparse.Namespace, extra: Sequence[str]) -> int:
    """Makes the missing measurements, writes the results, and returns the exit code."""
    configs, path = speed_rounds.plan(experiment, extra, options.env, options.logdir)
    curves.check_matplotlib()
    results = f"{path.parent / experiment.name}.png, .md, .json"
    if options.draw:
        speed_report.write(experiment, path)
        say(results)
        return 0
    speed_rounds.check(configs)
    with locked(path.parent):
        rounds = speed_rounds.Rounds(path, configs, options.seconds)
        done = sum(min(len(rows), options.rounds) for rows in rounds.rows.values())
        wanted = len(configs) * options.rounds
        say(f"{experiment.name}: {wanted} measurements of {3 * options.seconds:g} s, of which {done} exist already")
        try:
            failed = speed_rounds.run(rounds, configs, options.seconds, options.rounds, say)
        except KeyboardInterrupt:
            failed = -1
        try:
            speed_report.write(experiment, path)
            say(results)
        except ConfigError as error:  # such as no measurements yet
            say(f"results not written: {error}")
    return stopped() if failed < 0 else min(failed, 1)


def measure_rounds(experiment: ba3c.ClusterExperiment, options: argparse.Namespace) -> int:
    """Makes the missing measurements of a cluster experiment, writes the results, and returns the exit code."""
    path = Path(options.logdir or f"runs/{experiment.name}") / f"{experiment.name}.rounds.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    curves.check_matplotlib()
    if not options.draw:
        with locked(path.parent):
            ba3c.measure(experiment, path, options.seconds, say)
    ba3c_report.write(experiment, path)
    say(f"{path.parent / experiment.name}.png, .md, .json")
    return 0


def measure_loads(experiment: loads.LoadExperiment, options: argparse.Namespace) -> int:
    """Makes the missing measurements of a load experiment, writes the results, and returns the exit code."""
    path = Path(options.logdir or f"runs/{experiment.name}") / f"{experiment.name}.rounds.json"
    curves.check_matplotlib()
    failed = 0
    if not options.draw:
        with locked(path.parent):
            failed = loads.measure(experiment, path, options.seconds, options.rounds, say)
    loads_report.write(experiment, path)
    say(f"{path.parent / experiment.name}.png, .md, .json")
    return min(failed, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a run or measurement failed, 2 for bad input, 130 if stopped."""
    try:
        options, extra = parse(sys.argv[1:] if argv is None else argv)
        if isinstance(options.experiment, ba3c.ClusterExperiment):
            return measure_rounds(options.experiment, options)
        if isinstance(options.experiment, loads.LoadExperiment):
            return measure_loads(options.experiment, options)
        return measure(options.experiment, options, extra)
    except (OSError, ValueError) as error:  # ConfigError is a ValueError, and so are errors from damaged metrics
        print(f"reproduce.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return stopped()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM interrupts a measurement like Ctrl-C
    sys.exit(main())
