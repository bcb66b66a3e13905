"""Runs a system at full load and looks for what wears out: `python tools/soak.py [--minutes 30] [training flags]`.

The scheduler moves all counts (by default annealing, every 5 s). Three things are checked, and the exit code is 1 if
one of them fails:
  memory    what the server and an agent process have allocated beside the rings stays within 2 % in the last two thirds
  requests  every request of the groups that are there at the end has been answered and counted
  left      no thread of the run and no process is left when it has been closed
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, say
from measuring import endurance

from gunreal.config.schema import Config, ConfigError


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """The options and the configuration. Raises ConfigError."""
    parser = Parser("soak.py", __doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="minutes of full load (default: 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all measurements (default: none)")
    options, config, extras = parser.parse_with_training_flags(argv)
    if not 0 < options.minutes < 10**5:
        raise ConfigError(f"--minutes is {options.minutes:g}, but has to be above 0")
    if config.serial:
        raise ConfigError("what is soaked has agent processes; leave --serial out")
    moves = {"scheduler": "annealing"} if config.scheduler == "off" else {}
    if "scheduler_seconds" not in extras.given:
        moves["scheduler_seconds"] = 5.0  # a run of hours, in miniature
    return options, dataclasses.replace(config, steps=10**9, name="", **moves)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 where something wears out, 2 where the input was bad."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        found = endurance.soak(config, options.minutes)
    except ConfigError as error:
        print(f"soak.py: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    steps = found["looks"][-1]["steps"]
    memory_of = ", ".join(f"{name} within {share:.1%}" for name, share in found["spread"].items())
    say(f"{steps:,} agent steps; memory of the last two thirds: {memory_of}")
    say("requests: " + ("; ".join(f"{name} {what}" for name, what in found["groups"].items()) or "all answered"))
    say(f"left behind: {', '.join(found['left']) or 'nothing'}")
    return int(max(found["spread"].values()) > endurance.FLAT or bool(found["groups"] or found["left"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
