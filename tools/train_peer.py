"""Trains one system on an Atari game. Run it with the Python interpreter in which the system is installed.

  ~/venvs/sb3/bin/python tools/train_peer.py sb3-ppo --game Breakout --steps 1000000 --seed 1 --out runs/ppo

compare_peers.py and atari.py start this program. gunreal does not have to be installed in the same interpreter. Without
--out and --progress, the program only imports the system and prints the versions of its packages as JSON.
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
    """Runs the command."""
    parser = argparse.ArgumentParser(
        "train_peer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="SYSTEM", choices=PEERS, help=f"system: {', '.join(PEERS)}")
    parser.add_argument(
        "--settings",
        type=json.loads,
        default={},
        metavar="JSON",
        help="settings of the system, a JSON object (default: {})",
    )
    parser.add_argument(
        "--progress",
        metavar="FILE",
        help="file shared with the program that measures the speed: train on Pong and report agent steps there",
    )
    learning = parser.add_argument_group("learning with the system's own Atari settings")
    learning.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the run, for its metrics.jsonl")
    learning.add_argument("--game", default="Pong", help="game, as in ALE/GAME-v5 (default: Pong)")
    learning.add_argument(
        "--steps", type=int, default=1_000_000, metavar="N", help="length of the run, in agent steps (default: 1000000)"
    )
    learning.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: 1)")
    args = parser.parse_args(argv)
    peer = PEERS[args.name]
    if args.out:
        if not peer.learn:
            parser.error(f"{args.name} can't be trained with --out; gunreal is trained with python -m gunreal.train")
        learn(peer, args)
    elif not args.progress:
        print(json.dumps(versions(peer)))
    elif peer.drive:
        peer.drive(Progress(args.progress), **args.settings)
    else:
        parser.error(f"{args.name} has no settings for speed measurements; leave --progress out")


def learn(peer: Peer, args: argparse.Namespace) -> None:
    """Trains a system until the end of its budget, SIGINT or SIGTERM, and writes its learning curve."""
    args.out.mkdir(parents=True, exist_ok=True)
    curve = Curve(args.out, args.steps)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: curve.stop(signal.Signals(number).name))
    try:
        peer.learn(curve, args.game, args.seed, **args.settings)
    finally:
        curve.close()
        if os.getpgrp() == os.getpid():  # this program leads its process group: end everything that it has started
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.killpg(os.getpgrp(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
