"""How fast do gunreal and other systems train on the same cores?

  python tools/compare_peers.py --peers gunreal,sb3,sb3:envs=16:n_steps=5 --python sb3=~/venvs/sb3/bin/python

Each system trains on Pong in a process of its own, with the same network and the same protocol. Successive rounds
reverse the order of the systems (A B C, C B A). The table shows medians over the rounds: agent steps per second, CPU
time per agent step, and memory.

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

from common.command_line import Parser, check_writable, on_cores, without_gpus
from peers import contestants, speed
from peers.contestants import Contestant

from gunreal.config.schema import ConfigError


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """Returns the options and the systems to compare.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser("compare_peers.py", __doc__)
    contestants.add_options(parser)
    parser.add_argument(
        "--cores", type=int, default=2, metavar="N", help="number of cores for each system (default: 2)"
    )
    parser.add_argument(
        "--rounds", type=int, default=4, metavar="N", help="number of measurements of each system (default: 4)"
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="S", help="length of a measurement, in seconds (default: 30)"
    )
    parser.add_argument(
        "--warmup", type=float, default=10.0, metavar="S", help="time before a measurement, in seconds (default: 10)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the results (default: none)")
    args = parser.parse_args(argv[:end])
    if args.rounds < 1 or not 0 < args.seconds < math.inf or not 0 <= args.warmup < math.inf:
        raise ConfigError("--rounds must be at least 1, --seconds positive, --warmup not negative, and all finite")
    check_writable(args.json)
    return args, contestants.parse(args.peers, args.python, argv[end + 1 :])


def compare(args: argparse.Namespace, chosen: Sequence[Contestant]) -> int:
    """Measures the systems in rounds and returns the exit code."""
    results = speed.compare(chosen, args.rounds, args.warmup, args.seconds)
    best = speed.summarize(results)
    print(speed.table(results, best))
    if args.json:
        whole = {"cores": args.cores, "seconds": args.seconds, "warmup": args.warmup, "best_peer": best}
        args.json.write_text(json.dumps(whole | {"systems": results}, indent=1) + "\n")
    return 1 if any("failed" in row for row in results.values()) else 0


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        args, chosen = parse(argv)
        with on_cores(args.cores), without_gpus():
            return compare(args, chosen)
    except (OSError, ConfigError) as error:
        print(f"compare_peers.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("compare_peers.py: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
