"""Runs and draws the papers' experiments: `python tools/reproduce.py fig13 [--steps 1.5M] [--seeds 3] [-- FLAGS]`.

An experiment about learning trains every setting with every seed, as runs `EXPERIMENT-SETTING-sSEED` under --logdir.
An experiment about speed measures every setting for some seconds, in rounds. EXPERIMENT.png then has the picture,
EXPERIMENT.md and EXPERIMENT.json have the numbers beside the paper's. The same command again goes on where the last one
was stopped by Ctrl-C, which has the trainings save themselves. Finished runs are not repeated. FLAGS are training flags
for every run.
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
from experiments import adjustment, atari_papers, dispatcher, papers, report, speed_report, speed_rounds, trainings
from experiments.speed import RATES, SpeedExperiment
from experiments.table import Experiment, GamesExperiment, LearningExperiment

from gunreal.config.schema import ConfigError, close_match
from gunreal.config.units import parse_count
from gunreal.records import curves

ALL: dict[str, Experiment] = {**papers.EXPERIMENTS, **atari_papers.EXPERIMENTS, **RATES}
# Options that belong to one kind of experiment, with their defaults.
_OF_LEARNING: dict[str, float] = {"steps": 0, "minutes": 0, "seeds": 3, "parallel": 1, "smooth": 1}
_OF_RATES: dict[str, float] = {"seconds": 8, "rounds": 3}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the flags for every training.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    options = _parser().parse_args(argv[:end])
    experiment = options.experiment = _choose(options.experiment, options.settings)
    own, others, kind = _OF_LEARNING, _OF_RATES, "learning"
    if not isinstance(experiment, LearningExperiment):
        own, others, kind = others, own, "speed"
    for name in others:
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} has no meaning for {experiment.name}, which is about {kind}; leave it out")
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
    kinds: list[tuple[str, dict[str, Any]]] = [("learning", learned), ("speed", RATES)]
    parser.epilog = "\n\n".join(
        f"experiments about {kind}:\n" + "\n".join(f"  {name:<11} {of.title}" for name, of in known.items())
        for kind, known in kinds
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", help="one of those below")
    parser.add_argument(
        "--env", default="", help="environment (default: DeepMind Lab's level if installed, else its equivalent)"
    )
    parser.add_argument(
        "--games", default="", metavar="A,B", help="games of an experiment on several games (default: all)"
    )
    parser.add_argument("--settings", default="", metavar="A,B", help="settings to run (default: all)")
    parser.add_argument("--logdir", default="", help="folder of runs and results (default: runs/ENVIRONMENT)")
    parser.add_argument("--draw", action="store_true", help="run nothing; draw what is there, also unfinished runs")
    learning = parser.add_argument_group("experiments about learning")
    learning.add_argument("--steps", metavar="N", help="budget of a run in agent steps, such as 1.5M or 1500000")
    learning.add_argument(
        "--minutes", type=float, metavar="N", help="minutes of training after which a run ends (default: no limit)"
    )
    learning.add_argument("--seeds", type=int, metavar="N", help="seeds 1 to N (default: 3)")
    learning.add_argument(
        "--parallel", type=int, metavar="N", help="trainings at once; they slow each other (default: 1)"
    )
    learning.add_argument(
        "--smooth",
        type=int,
        metavar="N",
        help="width of the moving mean in lines of metrics, an odd number (default: 1)",
    )
    speed = parser.add_argument_group("experiments about speed")
    speed.add_argument(
        "--seconds", type=float, metavar="N", help="seconds of warm-up; measured is twice as long (default: 8)"
    )
    speed.add_argument("--rounds", type=int, metavar="N", help="rounds, of which medians are taken (default: 3)")
    return parser


def _check_number(name: str, value: float) -> None:
    if isinstance(value, int):
        if value < 1:
            raise ConfigError(f"--{name} is {value}, but has to be at least 1")
    else:
        check_positive(name, value)


def _choose(name: str, settings: str) -> Experiment:
    """The experiment with the settings of the list, or all of them."""
    if name not in ALL:
        raise ConfigError(f"there is no experiment {name!r}{close_match(name, ALL)}; there is {', '.join(ALL)}")
    known = ALL[name].settings
    chosen = settings.split(",") if settings else list(known)
    unknown = next((setting for setting in chosen if setting not in known), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no setting {unknown!r}; it has {', '.join(known)}")
    return dataclasses.replace(ALL[name], settings={setting: known[setting] for setting in chosen})


def _on_games(experiment: Experiment, games: str, env: str) -> Experiment:
    """The experiment on the games of the list, or on all of its own."""
    if not isinstance(experiment, GamesExperiment):
        raise ConfigError(f"--games has no meaning for {experiment.name}; choose an environment with --env")
    if env:
        raise ConfigError(f"{experiment.name} is about several games; choose among them with --games instead of --env")
    chosen = games.split(",") if games else list(experiment.games)
    for game in chosen:
        if game not in experiment.games:
            raise ConfigError(f"{experiment.name} has no game {game!r}; it has {', '.join(experiment.games)}")
    return dataclasses.replace(experiment, games={game: experiment.games[game] for game in chosen})


def train(experiment: LearningExperiment, options: argparse.Namespace, extra: Sequence[str]) -> int:
    """Trains what is missing and draws; returns the exit code."""
    logdir = options.logdir or (f"runs/{experiment.name}" if isinstance(experiment, GamesExperiment) else "")
    wanted = [
        training
        for part in experiment.parts()
        for training in trainings.plan(part, options.seeds, extra, options.env, options.steps, logdir)
    ]
    wanted.sort(key=lambda training: training.config.seed)  # all of the first seed first
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
            say(f"{training.config.name} is {training.path.resolve().name}, which has the same configuration")
        working = dispatcher.Dispatcher(wanted, options.parallel, lock, say)
        games = isinstance(experiment, GamesExperiment)
        missing = config.env == experiment.env() != experiment.envs[0]
        lacking = f", for want of deepmind_lab and {experiment.envs[0]}" if missing else ""
        where = ", ".join(experiment.games) if games else config.env + lacking
        done = sum(training.finished() for training in wanted)
        budget = trainings.budget(config.steps, experiment.minutes)
        say(f"{experiment.name} on {where}: {len(wanted)} runs of {budget}, {done} finished")
        working.train(lambda: dispatcher.attempt(draw, say))
    if dispatcher.attempt(draw, say):
        say(results)
    if working.stopping:
        return _stopped()
    return 1 if working.failed else 0


def _stopped() -> int:
    say(f"stopped; to go on: {shlex.join(['python', *sys.argv])}")
    return 130


def measure(experiment: SpeedExperiment, options: argparse.Namespace, extra: Sequence[str]) -> int:
    """Measures what is missing and draws; returns the exit code."""
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
        say(f"{experiment.name}: {wanted} measurements of {3 * options.seconds:g} s and a start, {done} are there")
        try:
            failed = speed_rounds.run(rounds, configs, options.seconds, options.rounds, say)
        except KeyboardInterrupt:
            failed = -1
        if dispatcher.attempt(lambda: speed_report.write(experiment, path), say):
            say(results)
    return _stopped() if failed < 0 else min(failed, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 where something failed, 2 where the input was bad, 130 when stopped."""
    try:
        options, extra = parse(sys.argv[1:] if argv is None else argv)
        if isinstance(options.experiment, LearningExperiment):
            return train(options.experiment, options, extra)
        return measure(options.experiment, options, extra)
    except (OSError, ValueError) as error:  # ConfigError is one; so is what damaged metrics raise
        print(f"reproduce.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _stopped()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a measurement is interrupted alike
    sys.exit(main())
