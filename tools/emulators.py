"""Does gunreal's Atari emulator behave like ale-py, and how fast is it?

  python tools/emulators.py verify --games all --frames 10000 --seed 0
  python tools/emulators.py verify --games pong --frames 1000 --modes
  python tools/emulators.py verify --games all --long --json long.jsonl
  python tools/emulators.py verify --games all --rules 20000
  python tools/emulators.py bench --games pong,breakout --rounds 3

`verify` plays the same random actions on both emulators and compares them frame by frame. With `--long`, it plays
110,000 frames without input and 5,000 of each action. With `--rules`, it writes the same bytes to the memories of both
and compares reward, lives and end. `bench` measures the speed of both in turn, and that of EnvPool if it is installed.

Exit codes: 0 on success, 1 if a supported game differs, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from common.command_line import Parser, check_positive, check_writable
from emulation.bench import bench
from emulation.memories import UNCOMPARED, compare_rules
from emulation.verify import compare, compare_long, verify, verify_modes, verify_rules
from gunreal_emulator import EmulatorUnavailable, UnknownGame
from gunreal_emulator.games import find_game, games, refused

from gunreal.config.schema import ConfigError

TWENTY = ("hero", "alien", "asterix", "asteroids", "battle_zone", "beam_rider", "bowling", "boxing", "breakout",
          "enduro", "frostbite", "kangaroo", "montezuma_revenge", "ms_pacman", "pong", "qbert", "riverraid", "seaquest",
          "space_invaders", "zaxxon")  # fmt: skip


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options. Raises ConfigError."""
    parser = Parser("emulators.py", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("verify", "compare with ale-py frame by frame"), ("bench", "compare the speed with ale-py's")):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "--games", default="twenty", help="all, twenty, or comma-separated names (default: twenty)"
        )
        frames = 10_000 if name == "verify" else 4_000
        command.add_argument("--frames", type=int, default=frames, help="frames per game (default: %(default)s)")
        command.add_argument("--seed", type=int, default=0, help="seed of the random actions (default: 0)")
        if name == "verify":
            way = command.add_mutually_exclusive_group()
            way.add_argument("--modes", action="store_true", help="all supported modes and all difficulties")
            way.add_argument("--long", action="store_true", help="without input for 110,000 frames, and held actions")
            way.add_argument("--rules", type=int, metavar="N", help="N mutated memories for the rules of each game")
            command.add_argument(
                "--json", type=Path, metavar="FILE", help="adds results to FILE, and skips games that were equal"
            )
        else:
            command.add_argument(
                "--rounds", type=int, default=3, help="number of measurements of each emulator (default: 3)"
            )
    options = parser.parse_args(arguments)
    check_positive("frames", options.frames)
    if options.command == "bench":
        check_positive("rounds", options.rounds)
    else:
        if options.rules is not None:
            check_positive("rules", options.rules)
        if options.json and (options.modes or options.rules):
            raise ConfigError("--json has no effect with --modes and --rules; leave it out")
        check_writable(options.json)
    if options.seed < 0:
        raise ConfigError(f"--seed is {options.seed}, but must not be negative")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns 1 if a supported game differs, 2 for bad input, else 0."""
    try:
        options = parse(arguments)
        names = [find_game(name).name for name in _names(options.games)]
        if options.command == "bench":
            return bench(names, options.frames, options.rounds)
        if options.modes:
            return verify_modes(names, options.frames, options.seed)
        if options.rules:
            return verify_rules(names, partial(compare_rules, count=options.rules, seed=options.seed), UNCOMPARED)
        how = f"over {options.frames} frames of seed {options.seed}"
        play = partial(compare, frames=options.frames, seed=options.seed)
        if options.long:
            play, how = compare_long, "over 110,000 frames without input and 90,000 of held actions"
        return verify(names, play, how, refused() if options.games == "all" else {}, options.json)
    except (ConfigError, UnknownGame, EmulatorUnavailable) as error:
        print(f"emulators.py: {error}", file=sys.stderr)
        return 2


def _names(text: str) -> list[str]:
    return games() if text == "all" else [g for g in TWENTY if g in games()] if text == "twenty" else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
