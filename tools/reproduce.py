"""Trains and draws the papers' experiments: `python tools/reproduce.py fig13 [--steps 1.5M] [--seeds 3] [-- FLAGS]`.

Every setting is trained with every seed, as runs `EXPERIMENT-SETTING-sSEED` under --logdir. Then EXPERIMENT.png has the
curves, EXPERIMENT.md and .json the numbers beside the paper's. The same command again goes on where the last one was
stopped (Ctrl-C: the trainings save themselves); finished runs are not repeated. FLAGS go to every training.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import curves
import report
import trainings
import workers
from command_line import Parser, say
from experiments import EXPERIMENTS, Experiment

from gunreal.config import ConfigError, close_match
from gunreal.units import parse_count


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the flags for every training.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser("reproduce.py", __doc__)
    known = "\n".join(f"  {name:<11} {experiment.title}" for name, experiment in EXPERIMENTS.items())
    parser.epilog = f"experiments:\n{known}"
    parser.add_argument("experiment", metavar="EXPERIMENT", help="see below")
    parser.add_argument("--env", default="", help="default: DeepMind Lab's level if installed, else the ViZDoom one")
    parser.add_argument("--steps", default="", metavar="N", help="budget of a run in agent steps, 1.5M or 1500000")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 1 to N (default 3)")
    parser.add_argument("--settings", default="", metavar="A,B", help="only these (default all)")
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="trainings at once; they slow each other (default 1)"
    )
    parser.add_argument("--logdir", default="", help="folder of the runs and the results (default runs/ENVIRONMENT)")
    parser.add_argument("--draw", action="store_true", help="train nothing; draw what is there, also unfinished runs")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="moving mean over N lines of metrics, odd")
    options = parser.parse_args(argv[:end])
    options.experiment = _choose(options.experiment, options.settings)
    for name in ("seeds", "parallel", "smooth"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} is {getattr(options, name)}, but has to be at least 1")
    curves.check_smoothing(options.smooth)
    try:
        options.steps = parse_count(options.steps) if options.steps else 0
    except ValueError as error:
        raise ConfigError(f"--steps: {error}") from error
    return options, list(argv[end + 1 :])


def _choose(name: str, settings: str) -> Experiment:
    """The experiment with the settings of the list, or all of them."""
    if name not in EXPERIMENTS:
        hint = close_match(name, EXPERIMENTS)
        raise ConfigError(f"there is no experiment {name!r}{hint}; there is {', '.join(EXPERIMENTS)}")
    known = EXPERIMENTS[name].settings
    chosen = settings.split(",") if settings else list(known)
    unknown = next((setting for setting in chosen if setting not in known), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no setting {unknown!r}; it has {', '.join(known)}")
    return dataclasses.replace(EXPERIMENTS[name], settings={setting: known[setting] for setting in chosen})


def reproduce(options: argparse.Namespace, extra: Sequence[str]) -> int:
    """Trains what is missing and draws; returns the exit code."""
    experiment = options.experiment
    wanted = trainings.plan(experiment, options.seeds, extra, options.env, options.steps, options.logdir)
    config = wanted[0].config
    out = Path(config.logdir)
    curves.check_matplotlib()
    results = f"{out / experiment.name}.png, .md, .json"
    if options.draw:
        report.write(experiment, out, options.smooth)
        say(results)
        return 0

    def draw() -> bool:
        try:
            report.write(experiment, out, options.smooth)
            return True
        except (OSError, ValueError) as error:  # no reason to stop trainings
            say(f"not drawn: {error}")
            return False

    trainings.check(wanted)
    with workers.locked(out) as lock:
        for training in trainings.share(wanted, out):
            say(f"{training.config.name} is {training.path.resolve().name}, which has the same configuration")
        crew = workers.Crew(wanted, options.parallel, lock, say)
        missing = config.env == experiment.env() != experiment.envs[0]
        where = config.env + (f", for want of deepmind_lab and {experiment.envs[0]}" if missing else "")
        done = sum(training.finished() for training in wanted)
        say(f"{experiment.name} on {where}: {len(wanted)} runs of {config.steps:,} agent steps, {done} finished")
        crew.train(draw)
    if draw():
        say(results)
    if crew.stopping:
        say(f"stopped; to go on: {shlex.join(['python', *sys.argv])}")
        return 130
    return 1 if crew.failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 where a training failed, 2 where the input was bad, 130 when stopped."""
    try:
        return reproduce(*parse(sys.argv[1:] if argv is None else argv))
    except (OSError, ValueError) as error:  # ConfigError is one; so is what damaged metrics raise
        print(f"reproduce.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
