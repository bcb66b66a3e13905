"""How do gunreal, Stable-Baselines3, Sample Factory and CleanRL score on Atari games?

  python tools/atari.py --python sb3=~/venvs/sb3/bin/python --python sf=~/venvs/sf/bin/python \\
    --python cleanrl=~/venvs/cleanrl/bin/python
  python tools/atari.py --games Pong,Breakout --systems gunreal,gunreal-tasks --steps 500k --seeds 1
  python tools/atari.py --systems gunreal,gunreal:algorithm=ppo --draw

The program trains every system on every game with every seed. It compares raw and human-normalized scores at equal
agent steps and at equal training times. After each run it writes atari.png, atari-GAME.png, atari.md and atari.json to
the folder of runs. Training flags after -- apply to all gunreal systems.

If the program is stopped, the same command continues: finished runs are kept, gunreal's runs resume from their
checkpoints, and unfinished runs of other systems start again.

All systems use the protocol of the papers: an action repeat of 4 frames, no sticky actions, and up to 30 no-ops at the
start of a game. A score is the raw score of a whole game, even for a system that trains on single lives. All systems
train on the CPU. GPUs are hidden from them.

Exit codes: 0 on success, 1 if a run failed, 2 for bad input, 130 if stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, check_positive, folder, positive_count, say, stopped, without_gpus
from experiments import dispatcher
from experiments.jobs import Job
from peers import contestants
from peers.contestants import Contestant
from peers.table import LEARNING
from scores import comparison, games, page, plan

from gunreal.config.schema import ConfigError
from gunreal.records import curves


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """Returns the options and the systems to compare.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser("atari.py", __doc__)
    contestants.add_options(parser, LEARNING, "systems", "learn")
    known = f"comma-separated games: {', '.join(games.GAMES)} (default: all but Pong)"
    parser.add_argument("--games", default="", metavar="A,B", help=known)
    parser.add_argument("--steps", default="1M", metavar="N", help="length of a run, in agent steps (default: 1M)")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="number of seeds (default: 2)")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="number of concurrent runs (default: 1)")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="training time at which to compare, in minutes (default: that of the shortest finished run)",
    )
    parser.add_argument(
        "--logdir", type=folder, default=Path("runs/atari"), help="folder of runs (default: runs/atari)"
    )
    parser.add_argument("--draw", action="store_true", help="draw existing runs, finished or not, without training")
    options = parser.parse_args(argv[:end])
    for name in ("seeds", "parallel", "minutes"):
        if getattr(options, name) is not None:
            check_positive(name, getattr(options, name))
    options.steps = positive_count("steps", options.steps)
    options.games = games.parse(options.games)
    return options, contestants.parse(options.systems, options.python, argv[end + 1 :], LEARNING, "learn")


def draw(options: argparse.Namespace, systems: Sequence[Contestant], jobs: Sequence[Job]) -> None:
    """Writes the results so far. Raises ConfigError if no run has a score yet."""
    of = {
        plan.run_name(system.label, game, seed): (system.label, game)
        for system in systems
        for game in options.games
        for seed in range(1, options.seeds + 1)
    }
    runs = comparison.read(jobs, {name: " ".join(pair) for name, pair in of.items()})
    if not runs:
        raise ConfigError(f"no run in {options.logdir} has a score yet")
    paths: dict[str, dict[str, list[Path]]] = {}
    for game in options.games:
        for job in jobs:
            system, played = of[job.name]
            if played == game and any(line["score_mean"] is not None for line in job.lines()):
                paths.setdefault(game, {}).setdefault(system, []).append(job.path)
    ours = [system.label for system in systems if system.peer.is_ours]
    results = comparison.summarize(runs, ours, options.steps, options.minutes)
    counts = [page.counted(len(paths), "game"), page.counted(options.steps, "agent step")]
    results["title"] = f"Atari, {', '.join(counts)} a run, up to {page.counted(options.seeds, 'seed')}"
    results["titles"] = {system.label: contestants.title(system) for system in systems}
    page.write(results, paths, options.logdir)


def run(options: argparse.Namespace, systems: Sequence[Contestant]) -> int:
    """Trains the missing runs, or draws only, and returns the exit code."""
    curves.check_matplotlib()
    known = {system.label: {} for system in systems} if options.draw else plan.describe(systems)
    budget = {"steps": options.steps, "seeds": options.seeds, "logdir": options.logdir}
    jobs = plan.plan(systems, options.games, known=known, **budget)
    if options.draw:
        plan.check_steps(jobs)
        draw(options, systems, jobs)
        say(f"{options.logdir / page.NAME}.png, .md, .json")
        return 0
    plan.check(jobs)
    with dispatcher.locked(options.logdir) as lock:
        working = dispatcher.Dispatcher(jobs, options.parallel, lock, say)
        finished = sum(job.finished() for job in jobs)
        say(f"{len(jobs)} runs of {options.steps:,} agent steps, of which {finished} have finished")
        working.train(lambda: dispatcher.attempt(lambda: draw(options, systems, jobs), say))
    if working.stopping:
        return stopped()
    return 1 if working.failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        options, systems = parse(sys.argv[1:] if argv is None else argv)
        with without_gpus():
            return run(options, systems)
    except (OSError, ValueError) as error:  # ConfigError is one
        print(f"atari.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return stopped()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM interrupts the preparations like Ctrl-C
    sys.exit(main())
