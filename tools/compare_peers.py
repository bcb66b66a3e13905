"""Compares gunreal with other systems on the same cores: `python tools/compare_peers.py [options] [-- FLAGS]`.

Speed: each system that can be imported trains on Pong in turn, in a process of its own, with the same network and the
same protocol. Rounds go forth and back (A B C C B A), and their medians are compared: agent steps a second, CPU
milliseconds of an agent step, and memory.

Learning (--learn): each system trains one after the other, with its own Atari settings, until the mean of the last 100
games is --score. Compared are the agent steps and the minutes until then. Runs are kept in --logdir: the same command
again goes on where the last one was stopped, and another system's unfinished run starts again.

Systems are looked for in this interpreter, unless --python names theirs. FLAGS are training flags for every gunreal.
A system may have other settings of its own. CleanRL is not compared: its newest release on PyPI (1.2.0) is scripts for
Python 3.10 and gym 0.23, and has no PQN.

  python tools/compare_peers.py --peers sb3,sb3:threads=1,sb3:envs=16:n_steps=5 --python sb3=~/venvs/sb3/bin/python
  python tools/compare_peers.py --learn --python sb3=~/venvs/sb3/bin/python --python sf=~/venvs/sf/bin/python

Exit code: 0; 1 if a system that is present failed; 2 if the input was bad; 130 if stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, check_positive, on_cores, say
from experiments import dispatcher
from peers import contestants, learning, speed
from peers.contestants import Contestant
from peers.table import LEARNING, SPEED
from scores import games, plan

from gunreal.config.schema import Config, ConfigError
from gunreal.config.units import parse_count
from gunreal.records import curves

_OTHERS = 10_000_000  # agent steps: the budget of the other systems' own settings
_OF_SPEED = {"rounds": 4, "seconds": 30.0, "warmup": 10.0, "json": ""}
_OF_LEARNING = {"score": 18.0, "env": "Pong", "steps": "", "seeds": 1, "logdir": ""}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """The options, and who is compared.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    learn = "--learn" in argv[:end]
    names, driver = (LEARNING, "learn") if learn else (SPEED, "drive")
    args = _parser(names, driver).parse_args(argv[:end])
    for name in _OF_SPEED if learn else _OF_LEARNING:
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name} {'does not go with' if learn else 'needs'} --learn; correct it")
    for name, default in (_OF_LEARNING if learn else _OF_SPEED).items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    (_check_learning if learn else _check_speed)(args)
    return args, contestants.parse(args.peers, args.python, argv[end + 1 :], names, driver)


def _parser(names: Sequence[str], driver: str) -> Parser:
    parser = Parser("compare_peers.py", __doc__)
    contestants.add_options(parser, names, "peers", driver)
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="cores that each may use (default: 2)")
    parser.add_argument("--learn", action="store_true", help="compare the time to a score; see --learn --help")
    fast = parser.add_argument_group("speed")
    fast.add_argument("--rounds", type=int, metavar="N", help="measurements of each system (default: 4)")
    fast.add_argument("--seconds", type=float, metavar="S", help="length of a measurement (default: 30)")
    fast.add_argument("--warmup", type=float, metavar="S", help="seconds before a measurement (default: 10)")
    fast.add_argument("--json", metavar="FILE", help="file for the results (default: none)")
    learn = parser.add_argument_group("learning")
    learn.add_argument("--score", type=float, metavar="X", help="mean of the last 100 games to reach (default: 18)")
    learn.add_argument("--env", metavar="GAME", help=f"one of {', '.join(games.GAMES)} (default: Pong)")
    learn.add_argument(
        "--steps",
        metavar="N",
        help="budget of a run in agent steps, over which rates fall (default: 1M for gunreal, 10M for others)",
    )
    learn.add_argument("--seeds", type=int, metavar="N", help="seeds 1 to N (default: 1)")
    learn.add_argument("--logdir", metavar="FOLDER", help="folder of runs and results (default: runs/learn-GAME)")
    return parser


def _check_speed(args: argparse.Namespace) -> None:
    if args.rounds < 1 or args.seconds <= 0 or args.warmup < 0:
        raise ConfigError("rounds has to be at least 1, seconds above 0 and warmup at least 0; correct them")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        raise ConfigError(f"the folder of --json {args.json} does not exist; make it, or name another")


def _check_learning(args: argparse.Namespace) -> None:
    check_positive("seeds", args.seeds)
    if not math.isfinite(args.score):
        raise ConfigError(f"--score is {args.score:g}, but has to be a finite number")
    (args.env,) = games.parse(args.env)[:1]
    args.logdir = Path(args.logdir or f"runs/learn-{args.env}")
    try:
        args.steps = parse_count(args.steps) if args.steps else 0
    except ValueError as error:
        raise ConfigError(f"--steps: {error}") from error


def compare_speed(args: argparse.Namespace, chosen: Sequence[Contestant]) -> int:
    """Measures the systems in rounds; returns the exit code."""
    results = speed.compare(chosen, args.rounds, args.warmup, args.seconds)
    best = speed.summarise(results)
    print(speed.table(results, best))
    if args.json:
        whole = {"cores": args.cores, "seconds": args.seconds, "warmup": args.warmup, "best_peer": best}
        Path(args.json).write_text(json.dumps(whole | {"systems": results}, indent=1) + "\n")
    return 1 if any("failed" in row for row in results.values()) else 0


def compare_learning(args: argparse.Namespace, chosen: Sequence[Contestant]) -> int:
    """Trains the systems one after the other until they have the score; returns the exit code."""
    curves.check_matplotlib()
    known = plan.describe(chosen)
    budget = {
        "steps": args.steps or _OTHERS,
        "our_steps": args.steps or Config.steps,
        "seeds": args.seeds,
        "logdir": args.logdir,
        "score": args.score,
    }
    jobs = plan.plan(chosen, [args.env], known=known, **budget)
    plan.check(jobs)
    by_system = {system.label: jobs[index :: len(chosen)] for index, system in enumerate(chosen)}
    titles = {system.label: contestants.title(system) for system in chosen}

    def draw() -> None:
        print(learning.write(by_system, titles, args.env, args.score, args.logdir))

    with dispatcher.locked(args.logdir) as lock:
        working = dispatcher.Dispatcher(jobs, 1, lock, say)
        working.train(lambda: None)
    dispatcher.attempt(draw, say)
    if working.stopping:
        say(f"stopped; to go on: {shlex.join(['python', *sys.argv])}")
        return 128 + signal.SIGINT
    return 1 if working.failed else 0


def main(argv: Sequence[str]) -> int:
    """The command; returns the exit code."""
    try:
        args, chosen = parse(argv)
        with on_cores(args.cores):
            return (compare_learning if args.learn else compare_speed)(args, chosen)
    except ConfigError as error:
        speed.say(f"compare_peers.py: {error}")
        return 2
    except KeyboardInterrupt:
        speed.say("compare_peers.py: interrupted")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
