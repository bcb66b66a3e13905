"""Reproduces an experiment of the papers: trains or measures its settings and compares the results with the paper.

  python tools/reproduce.py fig13 --steps 500k --seeds 2
  python tools/reproduce.py ga3c-table2
  python tools/reproduce.py recurrence -- --entropy 0.003

A learning experiment trains every setting with every seed. Its runs are called EXPERIMENT-SETTING-sSEED and are stored
in --logdir. A speed experiment measures every setting for some seconds in several rounds. Both write EXPERIMENT.png,
EXPERIMENT.md and EXPERIMENT.json. Training flags after -- apply to all runs.

Ctrl-C stops the program after the running trainings have saved a checkpoint. The same command then continues, and
finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, check_positive, positive_count, say, stopped
from experiments import (
    adjustment,
    atari_papers,
    ba3c,
    ba3c_report,
    choosing,
    cule,
    dispatcher,
    loads,
    loads_report,
    papers,
    report,
    speed_report,
    speed_rounds,
    trainings,
)
from experiments.speed import RATES, SpeedExperiment
from experiments.table import Experiment, GamesExperiment, LearningExperiment

from gunreal.config.schema import ConfigError
from gunreal.records import curves

ALL: dict[str, Experiment] = {**papers.EXPERIMENTS, **atari_papers.EXPERIMENTS, **RATES, **ba3c.ROUNDS}
ALL |= {**cule.EXPERIMENTS, **loads.EXPERIMENTS}
# Options that belong to one kind of experiment, with their defaults.
_OF_LEARNING: dict[str, float] = {"steps": 0, "minutes": 0, "seeds": 3, "parallel": 1, "smooth": 1}
_OF_RATES: dict[str, float] = {"seconds": 8, "rounds": 3}
_OF_CLUSTERS: dict[str, float] = {"seconds": 8}
_OF_LOADS: dict[str, float] = {"seconds": 3, "rounds": 1}
_KINDS: list[tuple[dict[str, float], str, type[Experiment]]] = [
    (_OF_LEARNING, "learning", LearningExperiment),
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
    experiment = options.experiment = choosing.choose(ALL, options.experiment, options.settings)
    own, kind = next(of for of in _KINDS if isinstance(experiment, of[2]))[:2]
    for name in (_OF_LEARNING | _OF_RATES).keys() - own.keys():
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} can't be used with {experiment.name}, a {kind} experiment; leave it out")
    for name, default in own.items():
        given = getattr(options, name)
        if given is None:
            setattr(options, name, default)
        elif name != "steps":
            _check_number(name, given)
    if options.tiny and not isinstance(experiment, loads.LoadExperiment):
        raise ConfigError(f"--tiny can't be used with {experiment.name}, a {kind} experiment; leave it out")
    fixed = isinstance(experiment, loads.LoadExperiment | ba3c.ClusterExperiment)
    if fixed and (options.env or argv[end + 1 :]):
        raise ConfigError(f"{experiment.name} has fixed settings; leave out --env and flags after --")
    if isinstance(experiment, loads.LoadExperiment):
        options.experiment = loads.chosen(experiment, options.games, options.tiny)
        options.seconds = min(options.seconds, 0.3) if options.tiny else options.seconds
    elif options.games or isinstance(experiment, GamesExperiment):
        experiment = options.experiment = choosing.on_games(experiment, options.games, options.env)
    if isinstance(experiment, LearningExperiment):
        curves.check_smoothing(options.smooth)
        options.experiment = dataclasses.replace(experiment, minutes=options.minutes or experiment.minutes)
        options.steps = positive_count("steps", options.steps) if options.steps else 0
    return options, list(argv[end + 1 :])


def _parser() -> Parser:
    parser = Parser("reproduce.py", __doc__)
    kinds = {kind: [of for of in ALL.values() if isinstance(of, form)] for _, kind, form in _KINDS}
    parser.epilog = "\n\n".join(
        f"{kind} experiments:\n" + "\n".join(f"  {of.name:<15} {of.title}" for of in known)
        for kind, known in kinds.items()
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", help="name of an experiment, from the lists below")
    parser.add_argument(
        "--env", default="", help="environment (default: the paper's, or gunreal's own maze without DeepMind Lab)"
    )
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
    learning = parser.add_argument_group("options of learning experiments")
    learning.add_argument(
        "--steps", metavar="N", help="length of a run in agent steps, such as 1.5M (default: the experiment's)"
    )
    learning.add_argument(
        "--minutes", type=float, metavar="N", help="longest training time of a run, in minutes (default: no limit)"
    )
    learning.add_argument("--seeds", type=int, metavar="N", help="number of seeds (default: 3)")
    learning.add_argument(
        "--parallel", type=int, metavar="N", help="number of concurrent runs, which slow each other down (default: 1)"
    )
    learning.add_argument(
        "--smooth",
        type=int,
        metavar="N",
        help="width of the moving average in lines of metrics, an odd number (default: 1)",
    )
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


def train(experiment: LearningExperiment, options: argparse.Namespace, extra: Sequence[str]) -> int:
    """Trains the missing runs, writes the results, and returns the exit code."""
    logdir = options.logdir or (f"runs/{experiment.name}" if isinstance(experiment, GamesExperiment) else "")
    wanted = [
        training
        for part in experiment.parts()
        for training in trainings.plan(part, options.seeds, extra, options.env, options.steps, logdir)
    ]
    wanted.sort(key=lambda training: training.config.seed)  # complete the first seed before the next one
    config = wanted[0].config
    out = Path(config.logdir)
    curves.check_matplotlib()

    def draw() -> None:
        if isinstance(experiment, GamesExperiment):
            report.write_games(experiment, out, options.smooth)
        elif experiment.target == "tps":
            report.write(experiment, out, options.smooth, adjustment.measure, adjustment.table)
        else:
            report.write(experiment, out, options.smooth)

    results = f"{out / experiment.name}.png, .md, .json"
    if options.draw:
        draw()
        say(results)
        return 0
    trainings.check(wanted)
    with dispatcher.locked(out) as lock:
        for training in trainings.share(wanted, out):
            say(f"{training.config.name} uses {training.path.resolve().name}, which has the same configuration")
        working = dispatcher.Dispatcher(wanted, options.parallel, lock, say)
        games = isinstance(experiment, GamesExperiment)
        missing = config.env == experiment.env() != experiment.envs[0]
        lacking = f" (instead of {experiment.envs[0]}, because deepmind_lab is not installed)" if missing else ""
        where = ", ".join(experiment.games) if games else config.env + lacking
        done = sum(training.finished() for training in wanted)
        budget = trainings.budget(config.steps, experiment.minutes)
        say(f"{experiment.name} on {where}: {len(wanted)} runs of {budget}, of which {done} have finished")
        working.train(lambda: dispatcher.attempt(draw, say))
    if dispatcher.attempt(draw, say):
        say(results)
    if working.stopping:
        return stopped()
    return 1 if working.failed else 0


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
    with dispatcher.locked(path.parent):
        rounds = speed_rounds.Rounds(path, configs, options.seconds)
        done = sum(min(len(rows), options.rounds) for rows in rounds.rows.values())
        wanted = len(configs) * options.rounds
        say(f"{experiment.name}: {wanted} measurements of {3 * options.seconds:g} s, of which {done} exist already")
        try:
            failed = speed_rounds.run(rounds, configs, options.seconds, options.rounds, say)
        except KeyboardInterrupt:
            failed = -1
        if dispatcher.attempt(lambda: speed_report.write(experiment, path), say):
            say(results)
    return stopped() if failed < 0 else min(failed, 1)


def measure_rounds(experiment: ba3c.ClusterExperiment, options: argparse.Namespace) -> int:
    """Makes the missing measurements of a cluster experiment, writes the results, and returns the exit code."""
    path = Path(options.logdir or f"runs/{experiment.name}") / f"{experiment.name}.rounds.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    curves.check_matplotlib()
    if not options.draw:
        with dispatcher.locked(path.parent):
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
        with dispatcher.locked(path.parent):
            failed = loads.measure(experiment, path, options.seconds, options.rounds, say)
    loads_report.write(experiment, path)
    say(f"{path.parent / experiment.name}.png, .md, .json")
    return min(failed, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a run or measurement failed, 2 for bad input, 130 if stopped."""
    try:
        options, extra = parse(sys.argv[1:] if argv is None else argv)
        if isinstance(options.experiment, LearningExperiment):
            return train(options.experiment, options, extra)
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
