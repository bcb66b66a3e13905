"""How fast do gunreal and other systems train on the same cores, and how soon do they reach a score?

  python tools/compare_peers.py --peers gunreal,sb3,sb3:envs=16:n_steps=5 --python sb3=~/venvs/sb3/bin/python
  python tools/compare_peers.py --learn --python sb3=~/venvs/sb3/bin/python --python sf=~/venvs/sf/bin/python

By default the program compares speed. Each system trains on Pong in a process of its own, with the same network and
the same protocol. Successive rounds reverse the order of the systems (A B C, C B A). The table shows medians over the
rounds: agent steps per second, CPU time per agent step, and memory.

With --learn it compares learning. The systems train one after the other, with their own recommended Atari settings,
until the mean score of the last 100 games reaches --score, or for --minutes. The table shows the agent steps and the
minutes that each system needed. If the program is stopped, the same command continues, but unfinished runs of other
systems start again.

All systems use the CPU. GPUs are hidden from them.

Use --python if a system is installed in another virtual environment. Training flags after -- apply to all gunreal
systems. Settings of a single system follow its name, separated by colons.

Exit codes: 0 on success, 1 if an installed system failed, 2 for bad input, 130 if stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import (
    Parser,
    check_positive,
    check_writable,
    folder,
    on_cores,
    positive_count,
    say,
    stopped,
    without_gpus,
)
from peers import contestants, jobs, learning, speed
from peers.contestants import Contestant
from peers.table import LEARNING, SPEED

from gunreal.config import folders
from gunreal.config.schema import Config, ConfigError, close_match
from gunreal.records import curves
from gunreal.records.human import GAMES
from gunreal.runtime.jobs import Scheduler

_OTHERS = 10_000_000  # agent steps: the budget that the other systems' settings are made for
_OF_SPEED = {"rounds": 4, "seconds": 30.0, "warmup": 10.0, "json": None}
_OF_LEARNING = {"score": 18.0, "env": "Pong", "steps": "", "minutes": math.inf, "seeds": 1, "logdir": ""}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """Returns the options and the systems to compare.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    learn = "--learn" in argv[:end]
    names, driver = (LEARNING, "learn") if learn else (SPEED, "drive")
    args = _parser(names, driver).parse_args(argv[:end])
    for name in _OF_SPEED if learn else _OF_LEARNING:
        if getattr(args, name) is not None:
            state = "can't be used with" if learn else "needs"
            raise ConfigError(f"--{name} {state} --learn; {'leave it out' if learn else 'add --learn'}")
    for name, default in (_OF_LEARNING if learn else _OF_SPEED).items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    (_check_learning if learn else _check_speed)(args)
    return args, contestants.parse(args.peers, args.python, argv[end + 1 :], names, driver)


def _parser(names: Sequence[str], driver: str) -> Parser:
    parser = Parser("compare_peers.py", __doc__)
    contestants.add_options(parser, names, "peers", driver)
    parser.add_argument(
        "--cores", type=int, default=2, metavar="N", help="number of cores for each system (default: 2)"
    )
    parser.add_argument(
        "--learn", action="store_true", help="compare the time to reach a score (its systems: --learn --help)"
    )
    fast = parser.add_argument_group("options for comparing speed")
    fast.add_argument("--rounds", type=int, metavar="N", help="number of measurements of each system (default: 4)")
    fast.add_argument("--seconds", type=float, metavar="S", help="length of a measurement, in seconds (default: 30)")
    fast.add_argument("--warmup", type=float, metavar="S", help="time before a measurement, in seconds (default: 10)")
    fast.add_argument("--json", type=Path, metavar="FILE", help="file for the results (default: none)")
    learn = parser.add_argument_group("options for comparing learning (--learn)")
    learn.add_argument("--score", type=float, metavar="X", help="target for the mean of 100 games (default: 18)")
    learn.add_argument("--env", metavar="GAME", help=f"game, one of {', '.join(GAMES)} (default: Pong)")
    learn.add_argument(
        "--steps",
        metavar="N",
        help="longest run, in agent steps; sets the decay of learning rates (default: 1M for gunreal, 10M for others)",
    )
    learn.add_argument("--minutes", type=float, metavar="M", help="longest run, in minutes (default: no limit)")
    learn.add_argument("--seeds", type=int, metavar="N", help="number of seeds (default: 1)")
    learn.add_argument(
        "--logdir", type=folder, metavar="FOLDER", help="folder of runs and results (default: runs/learn-GAME)"
    )
    return parser


def _check_speed(args: argparse.Namespace) -> None:
    if args.rounds < 1 or not 0 < args.seconds < math.inf or not 0 <= args.warmup < math.inf:
        raise ConfigError("--rounds must be at least 1, --seconds positive, --warmup not negative, and all finite")
    check_writable(args.json)


def _check_learning(args: argparse.Namespace) -> None:
    check_positive("seeds", args.seeds)
    if not args.minutes > 0:
        raise ConfigError(f"--minutes is {args.minutes:g}, but must be positive")
    if not math.isfinite(args.score):
        raise ConfigError(f"--score is {args.score:g}, but must be a finite number")
    if args.env not in GAMES:
        hint = close_match(args.env, GAMES) or f"; use one of {', '.join(GAMES)}"
        raise ConfigError(f"unknown game {args.env!r}{hint}")
    args.logdir = args.logdir or Path(f"runs/learn-{args.env}")
    args.steps = positive_count("steps", args.steps) if args.steps else 0


def compare_speed(args: argparse.Namespace, chosen: Sequence[Contestant]) -> int:
    """Measures the systems in rounds and returns the exit code."""
    results = speed.compare(chosen, args.rounds, args.warmup, args.seconds)
    best = speed.summarize(results)
    print(speed.table(results, best))
    if args.json:
        whole = {"cores": args.cores, "seconds": args.seconds, "warmup": args.warmup, "best_peer": best}
        args.json.write_text(json.dumps(whole | {"systems": results}, indent=1) + "\n")
    return 1 if any("failed" in row for row in results.values()) else 0


def compare_learning(args: argparse.Namespace, chosen: Sequence[Contestant]) -> int:
    """Trains the systems one after the other until they reach the score, and returns the exit code."""
    curves.check_matplotlib()
    known = jobs.describe(chosen)
    budget = {
        "steps": args.steps or _OTHERS,
        "our_steps": args.steps or Config.steps,
        "seeds": args.seeds,
        "logdir": args.logdir,
        "score": args.score,
        "minutes": args.minutes,
    }
    planned = jobs.plan(chosen, args.env, known=known, **budget)
    jobs.check(planned)
    by_system = {system.label: planned[index :: len(chosen)] for index, system in enumerate(chosen)}
    titles = {system.label: contestants.title(system) for system in chosen}

    args.logdir.mkdir(parents=True, exist_ok=True)
    with folders.locked(args.logdir):
        working = Scheduler(planned, 1, say)
        working.run()
    print(learning.write(by_system, titles, args.env, args.score, args.logdir))
    if working.stopping:
        return stopped()
    return 1 if "failed" in working.states.values() else 0


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        args, chosen = parse(argv)
        with on_cores(args.cores), without_gpus():
            return (compare_learning if args.learn else compare_speed)(args, chosen)
    except (OSError, ValueError) as error:  # ConfigError is one, and so are errors from damaged files
        speed.say(f"compare_peers.py: {error}")
        return 2
    except KeyboardInterrupt:
        speed.say("compare_peers.py: interrupted")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
