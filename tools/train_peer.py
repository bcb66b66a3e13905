"""Trains one system, in the interpreter that has it: `PYTHON tools/train_peer.py SYSTEM [options]`.

compare_peers.py and atari.py start this program. The interpreter needs no gunreal, unless the system is gunreal.
Without --out and --progress it imports the system and prints the versions that it is made of, as JSON. By hand:

  ~/venvs/sb3/bin/python tools/train_peer.py sb3-ppo --game Breakout --steps 1000000 --seed 1 --out runs/ppo
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.curve import Curve
from peers.progress import Progress
from peers.table import PEERS, Peer, versions


def main(argv: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        "train_peer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="SYSTEM", choices=PEERS, help=", ".join(PEERS))
    parser.add_argument(
        "--settings", type=json.loads, default={}, metavar="JSON", help="the driver's keyword arguments (default: none)"
    )
    parser.add_argument(
        "--progress",
        metavar="FILE",
        help="train on Pong until the program that shares this file says stop, and report the agent steps there",
    )
    learning = parser.add_argument_group("learning, with the system's own Atari settings")
    learning.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the run, for its metrics.jsonl")
    learning.add_argument("--game", default="Pong", help="as in ALE/NAME-v5 (default: Pong)")
    learning.add_argument("--steps", type=int, default=1_000_000, metavar="N", help="agent steps (default: 1000000)")
    learning.add_argument("--seed", type=int, default=1, metavar="N", help="seed of everything (default: 1)")
    args = parser.parse_args(argv)
    peer = PEERS[args.name]
    if args.out:
        if not peer.learn:
            parser.error(f"{args.name} has no driver that learns; gunreal's is python -m gunreal.train")
        learn(peer, args)
    elif not args.progress:
        print(json.dumps(versions(peer)))
    elif peer.drive:
        peer.drive(Progress(args.progress), **args.settings)
    else:
        parser.error(f"{args.name} is not measured for speed")


def learn(peer: Peer, args: argparse.Namespace) -> None:
    """Trains a system until its budget is used up, or SIGINT or SIGTERM says stop, and writes its curve."""
    args.out.mkdir(parents=True, exist_ok=True)
    curve = Curve(args.out, args.steps)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: curve.stop(signal.Signals(number).name))
    try:
        peer.learn(curve, args.game, args.seed, **args.settings)
    finally:
        curve.close()
        if os.getpgrp() == os.getpid():  # the group is this program's own: whatever it has started ends with it
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.killpg(os.getpgrp(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
