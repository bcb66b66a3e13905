"""Trains one system, in the interpreter that has it: `PYTHON tools/train_peer.py SYSTEM [options]`.

compare_peers.py and atari.py start this program. Without further options it imports the system and prints the versions
that it is made of, as JSON. The interpreter needs no gunreal, unless the system is gunreal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from peers.progress import Progress
from peers.table import PEERS, versions


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
    args = parser.parse_args(argv)
    peer = PEERS[args.name]
    if not args.progress:
        print(json.dumps(versions(peer)))
    elif peer.drive:
        peer.drive(Progress(args.progress), **args.settings)
    else:
        parser.error(f"{args.name} is not measured for speed")


if __name__ == "__main__":
    main(sys.argv[1:])
