"""Compares gunreal with other systems on the same cores: `python tools/compare_peers.py [options] [-- FLAGS]`.

Each system that can be imported trains on Pong in turn, in a process of its own, with the same network and the same
protocol. Rounds go forth and back (A B C C B A), and their medians are compared: agent steps a second, CPU
milliseconds of an agent step, and memory. Without --python, systems are looked for in this interpreter.
FLAGS are training flags for every gunreal. tools/peers/README.md says how each system is set up.
Exit code: 0; 1 if a system that is present failed; 2 if the input was bad.

A system may be measured with other settings of its own, to find its best ones:

  python tools/compare_peers.py --peers sb3,sb3:threads=1,sb3:envs=16:n_steps=5 --python sb3=~/venvs/sb3/bin/python
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, on_cores
from peers import contestants, speed
from peers.contestants import Contestant
from peers.table import SPEED

from gunreal.config.schema import ConfigError


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """The options, and who is compared.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser("compare_peers.py", __doc__)
    contestants.add_options(parser, SPEED, "peers", "drive")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="measurements of each system (default: 4)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="length of one (default: 30)")
    parser.add_argument("--warmup", type=float, default=10.0, metavar="S", help="seconds before it (default: 10)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="cores that each may use (default: 2)")
    parser.add_argument("--json", default="", metavar="FILE", help="file for the results (default: none)")
    args = parser.parse_args(argv[:end])
    if args.rounds < 1 or args.seconds <= 0 or args.warmup < 0:
        raise ConfigError("rounds has to be at least 1, seconds above 0 and warmup at least 0; correct them")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        raise ConfigError(f"the folder of --json {args.json} does not exist; make it, or name another")
    return args, contestants.parse(args.peers, args.python, argv[end + 1 :], SPEED, "drive")


def main(argv: Sequence[str]) -> int:
    """The command; returns the exit code."""
    try:
        args, chosen = parse(argv)
        with on_cores(args.cores):
            results = speed.compare(chosen, args.rounds, args.warmup, args.seconds)
    except ConfigError as error:
        speed.say(f"compare_peers.py: {error}")
        return 2
    except KeyboardInterrupt:
        speed.say("compare_peers.py: interrupted")
        return 128 + signal.SIGINT
    best = speed.summarise(results)
    print(speed.table(results, best))
    if args.json:
        whole = {"cores": args.cores, "seconds": args.seconds, "warmup": args.warmup, "best_peer": best}
        Path(args.json).write_text(json.dumps(whole | {"systems": results}, indent=1) + "\n")
    return 1 if any("failed" in row for row in results.values()) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
