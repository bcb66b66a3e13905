"""Trains one system on Pong for compare_peers.py, in the Python interpreter in which the system is installed.

  ~/venvs/sb3/bin/python tools/train_peer.py sb3 --progress FILE

gunreal does not have to be installed in the same interpreter. Without --progress, the program only imports the system
and prints the versions of its packages as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from peers.progress import Progress
from peers.table import PEERS, versions


def main(argv: Sequence[str]) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        "train_peer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="SYSTEM", choices=PEERS, help=f"system: {', '.join(PEERS)}")
    parser.add_argument(
        "--settings", type=json.loads, default={}, metavar="JSON", help="settings of the system (default: {})"
    )
    parser.add_argument("--progress", metavar="FILE", help="file for reports of agent steps; trains until it says stop")
    args = parser.parse_args(argv)
    peer = PEERS[args.name]
    if args.progress:
        peer.drive(Progress(args.progress), **args.settings)
    else:
        print(json.dumps(versions(peer)))


if __name__ == "__main__":
    main(sys.argv[1:])
