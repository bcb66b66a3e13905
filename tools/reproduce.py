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
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, check_positive, say
from experiments import (
    adjustment,
    atari_papers,
    ba3c,
    ba3c_report,
    dispatcher,
    papers,
    report,
    speed_report,
    speed_rounds,
    trainings,
)
from experiments.speed import RATES, SpeedExperiment
from experiments.table import Experiment, GamesExperiment, LearningExperiment

from gunreal.config.schema import ConfigError, close_match
from gunreal.config.units import parse_count
from gunreal.records import curves

ALL: dict[str, Experiment] = {**papers.EXPERIMENTS, **atari_papers.EXPERIMENTS, **RATES, **ba3c.ROUNDS}
# Options that belong to one kind of experiment, with their defaults.
_OF_LEARNING: dict[str, float] = {"steps": 0, "minutes": 0, "seeds": 3, "parallel": 1, "smooth": 1}
_OF_RATES: dict[str, float] = {"seconds": 8, "rounds": 3}
_OF_CLUSTERS: dict[str, float] = {"seconds": 8}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options and the training flags for all runs.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    options = _parser().parse_args(argv[:end])
    experiment = options.experiment = _choose(options.experiment, options.settings)
    own, kind = _OF_LEARNING, "learning"
    if not isinstance(experiment, LearningExperiment):
        own, kind = (
            (_OF_CLUSTERS, "cluster") if isinstance(experiment, ba3c.ClusterExperiment) else (_OF_RATES, "speed")
        )
    for name in (_OF_LEARNING | _OF_RATES).keys() - own.keys():
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} can't be used with {experiment.name}, a {kind} experiment; leave it out")
    for name, default in own.items():
        given = getattr(options, name)
        if given is None:
            setattr(options, name, default)
        elif name != "steps":
            _check_number(name, given)
    if options.games or isinstance(experiment, GamesExperiment):
        experiment = options.experiment = _on_games(experiment, options.games, options.env)
    if isinstance(experiment, LearningExperiment):
        curves.check_smoothing(options.smooth)
        options.experiment = dataclasses.replace(experiment, minutes=options.minutes or experiment.minutes)
        try:
            options.steps = parse_count(options.steps) if options.steps else 0
        except ValueError as error:
            raise ConfigError(f"--steps: {error}") from error
    return options, list(argv[end + 1 :])


def _parser() -> Parser:
    parser = Parser("reproduce.py", __doc__)
    learned = {name: of for name, of in ALL.items() if isinstance(of, LearningExperiment)}
    kinds: list[tuple[str, dict[str, Any]]] = [("learning", learned), ("speed", RATES), ("cluster", ba3c.ROUNDS)]
    parser.epilog = "\n\n".join(
        f"{kind} experiments:\n" + "\n".join(f"  {name:<11} {of.title}" for name, of in known.items())
        for kind, known in kinds
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
        "--logdir", default="", help="folder of runs and results (default: runs/ENVIRONMENT, or runs/EXPERIMENT)"
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
    speed = parser.add_argument_group("options of speed and cluster experiments")
    speed.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="length of the warm-up, in seconds; a measurement is twice as long (default: 8)",
    )
    speed.add_argument("--rounds", type=int, metavar="N", help="number of rounds; the medians are shown (default: 3)")
    return parser


def _check_number(name: str, value: float) -> None:
    if isinstance(value, int):
        if value < 1:
            raise ConfigError(f"--{name} is {value}, but must be at least 1")
    else:
        check_positive(name, value)


def _choose(name: str, settings: str) -> Experiment:
    """Returns the experiment with the listed settings, or with all of them."""
    if name not in ALL:
        raise ConfigError(f"unknown experiment {name!r}{close_match(name, ALL)}; available: {', '.join(ALL)}")
    known = ALL[name].settings
    chosen = settings.split(",") if settings else list(known)
    unknown = next((setting for setting in chosen if setting not in known), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no setting {unknown!r}; available: {', '.join(known)}")
    return dataclasses.replace(ALL[name], settings={setting: known[setting] for setting in chosen})


def _on_games(experiment: Experiment, games: str, env: str) -> Experiment:
    """Returns the experiment on the listed games, or on all of its games."""
    if not isinstance(experiment, GamesExperiment):
        raise ConfigError(f"{experiment.name} does not use several games; choose an environment with --env")
    if env:
        raise ConfigError(f"{experiment.name} uses several games; choose them with --games instead of --env")
    chosen = games.split(",") if games else list(experiment.games)
    for game in chosen:
        if game not in experiment.games:
            raise ConfigError(f"{experiment.name} has no game {game!r}; available: {', '.join(experiment.games)}")
    return dataclasses.replace(experiment, games={game: experiment.games[game] for game in chosen})


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
        return _stopped()
    return 1 if working.failed else 0


def _stopped() -> int:
    say(f"stopped; to continue, run: {shlex.join(['python', *sys.argv])}")
    return 130


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
    return _stopped() if failed < 0 else min(failed, 1)


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


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a run or measurement failed, 2 for bad input, 130 if stopped."""
    try:
        options, extra = parse(sys.argv[1:] if argv is None else argv)
        if isinstance(options.experiment, LearningExperiment):
            return train(options.experiment, options, extra)
        if isinstance(options.experiment, ba3c.ClusterExperiment):
            return measure_rounds(options.experiment, options)
        return measure(options.experiment, options, extra)
    except (OSError, ValueError) as error:  # ConfigError is a ValueError, and so are errors from damaged metrics
        print(f"reproduce.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _stopped()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM interrupts a measurement like Ctrl-C
    sys.exit(main())
