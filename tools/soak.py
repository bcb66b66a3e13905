"""Does anything leak or get stuck under full load?

  python tools/soak.py --minutes 30 --tasks pc,vr,rp

The program trains at full speed while the scheduler changes the numbers of processes and threads (by default the
annealing scheduler, every 5 s). Three checks follow:
  memory    the memory of the server and of an agent process, without the replay rings, varies by at most 2 % in the
            last two thirds of the run
  requests  every prediction request has been answered and counted
  left      no thread or process is left after the run

Exit codes: 0 if all checks pass, 1 if one or the training fails, 2 for bad input, 130 if stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, check_processes, check_writable, reason, say
from measuring import endurance

from gunreal.config.schema import Config, ConfigError
from gunreal.envs.step import AgentFailure


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """Returns the options and the training configuration. Raises ConfigError."""
    parser = Parser("soak.py", __doc__)
    parser.add_argument(
        "--minutes", type=float, default=30.0, metavar="N", help="length of the test, in minutes (default: 30)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all measurements (default: none)")
    options, config, extras = parser.parse_with_training_flags(argv)
    if not 0 < options.minutes < 10**5:
        raise ConfigError(f"--minutes is {options.minutes:g}, but must be positive")
    check_processes(config)
    check_writable(options.json)
    moves = {"scheduler": "annealing"} if config.scheduler == "off" else {}
    if "scheduler_seconds" not in extras.given:
        moves["scheduler_seconds"] = 5.0  # as many changes in half an hour as in a run of many hours
    return options, dataclasses.replace(config, steps=10**9, name="", **moves)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        found = endurance.soak(config, options.minutes)
    except ConfigError as error:
        print(f"soak.py: {error}", file=sys.stderr)
        return 2
    except (AgentFailure, OSError) as error:
        print(f"soak.py: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # a part of a test is no result
        print("soak.py: interrupted", file=sys.stderr)
        return 130
    steps = found["looks"][-1]["steps"]
    memory_of = ", ".join(f"{name} within {share:.1%}" for name, share in found["spread"].items())
    say(f"{steps:,} agent steps; memory in the last two thirds: {memory_of}")
    say("requests: " + ("; ".join(f"{name} {what}" for name, what in found["groups"].items()) or "all answered"))
    say(f"left behind: {', '.join(found['left']) or 'nothing'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(max(found["spread"].values()) > endurance.FLAT or bool(found["groups"] or found["left"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
