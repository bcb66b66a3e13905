"""How long does a training on two nodes pause when something fails, and when is the node back?

  python tools/cluster_faults.py
  python tools/cluster_faults.py --faults node-killed,node-stopped --repeats 3

Every fault is a training on CartPole of its own, on real processes. It prints medians over the repeats, in seconds:

  pause  longest time without an update, from the fault until the node is back
  back   time until all nodes take part, from the fault, or from the end of its cause if it has one
  ended  time until the run has ended, if the fault ends it
  gone   time until all its processes have ended

Faults of a computer or of a disk need Linux and root, because they use network namespaces and small disks.
"""

from __future__ import annotations

import signal
import statistics
import sys
from collections.abc import Sequence

from common.command_line import Parser, check_positive
from measuring.faults import FAULTS, Result, measure

from gunreal.config.schema import ConfigError, close_match


def row(name: str, results: Sequence[Result]) -> str:
    """The medians of a fault, as a row of a table."""
    cells = []
    for field in Result._fields:
        values = [value for result in results if (value := getattr(result, field)) is not None]
        cells.append(f"{statistics.median(values):.1f}" if values else "")
    return f"| {' | '.join([FAULTS[name].text, *cells, str(len(results))])} |"


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 on success, 1 if a training did not survive, 2 for bad input, 130 if stopped."""
    try:
        parser = Parser("cluster_faults.py", __doc__)
        parser.add_argument("--faults", default=",".join(FAULTS), help=f"faults (default: all): {', '.join(FAULTS)}")
        parser.add_argument("--repeats", type=int, default=1, metavar="N", help="trainings for each (default: 1)")
        options = parser.parse_args(argv)
        check_positive("repeats", options.repeats)
        names = options.faults.split(",")
        for name in names:
            if name not in FAULTS:
                raise ConfigError(f"unknown fault {name!r}{close_match(name, FAULTS)}; see --help")
    except ConfigError as error:
        print(f"cluster_faults.py: {error}", file=sys.stderr)
        return 2
    try:
        return _print(names, options.repeats)
    except KeyboardInterrupt:
        return 130


def _print(names: Sequence[str], repeats: int) -> int:
    """Measures, and prints a row for each fault. Returns the exit code."""
    print(f"| what fails | {' | '.join(Result._fields)} | repeats |\n|{'---|' * (len(Result._fields) + 2)}", flush=True)
    failed = False
    for name in names:
        results = []
        for _ in range(repeats):
            try:
                results.append(measure(name))
            except ConfigError as error:
                failed = True
                print(f"cluster_faults.py: {name}: {error}", file=sys.stderr, flush=True)
        print(row(name, results), flush=True)
    return int(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that networks and disks are removed
    sys.exit(main(sys.argv[1:]))
