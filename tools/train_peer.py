"""Trains one system on an Atari game. Run it with the Python interpreter in which the system is installed.

  ~/venvs/sb3/bin/python tools/train_peer.py sb3-ppo --game Breakout --steps 1000000 --seed 1 --out runs/ppo

compare_peers.py starts this program. gunreal does not have to be installed in the same interpreter. Without
--out and --progress, the program only imports the system and prints the versions of its packages as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from peers.curve import Curve
from peers.progress import Progress
from peers.table import PEERS, Peer, versions

_PATIENCE = 60.0  # seconds for a system to end after a signal


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
    """Trains a system until the end of its budget, SIGINT or SIGTERM, and writes its learning curve.

    A further signal ends it at once, and so does time, because a system may wait for workers that a signal has killed.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    curve = Curve(args.out, args.steps)
    stop = _stopping(curve)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        peer.learn(curve, args.game, args.seed, **args.settings)
    finally:
        curve.close()
        if _leads():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.killpg(os.getpgrp(), signal.SIGTERM)


def _leads() -> bool:
    """Whether this program leads its process group, so that everything that it has started can be ended with it."""
    return os.getpgrp() == os.getpid()


def _stopping(curve: Curve) -> Callable[[int, Any], None]:
    """Returns a signal handler that ends the training in order, and by force if it goes on."""
    own, came = os.getpid(), [0]

    def stop(number: int, _: Any) -> None:
        curve.stop(signal.Signals(number).name)
        if os.getpid() != own:
            return  # a process of the system, which has inherited this handler
        came[0] += 1
        if came[0] > 1:
            _end(curve)
        timer = threading.Timer(_PATIENCE, _end, (curve,))
        timer.daemon = True
        timer.start()

    return stop


def _end(curve: Curve) -> NoReturn:
    """Ends this program at once, and everything that it has started."""
    try:
        curve.close()
    finally:
        if _leads():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
