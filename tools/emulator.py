"""The emulator beside ale-py: `verify` compares them frame by frame, `bench` measures their speed in turn.

python tools/emulator.py verify --games all --frames 10000 --seed 0
python tools/emulator.py bench --games pong,breakout --rounds 3
"""

from __future__ import annotations

import argparse
import sys

from emulation.bench import bench
from emulation.verify import verify

from gunreal.emulator import EmulatorUnavailable, UnknownGame
from gunreal.emulator.games import find_game, games, refused

TWENTY = ("hero", "alien", "asterix", "asteroids", "battle_zone", "beam_rider", "bowling", "boxing", "breakout",
          "enduro", "frostbite", "kangaroo", "montezuma_revenge", "ms_pacman", "pong", "qbert", "riverraid", "seaquest",
          "space_invaders", "zaxxon")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 1 if a claimed game differs, 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="emulator.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("verify", "compare with ale-py frame by frame"), ("bench", "measure speed beside ale-py")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--games", default="twenty", help="all, twenty, or names with commas")
        frames = 10_000 if name == "verify" else 4_000
        command.add_argument("--frames", type=int, default=frames, help="frames of a game (default: %(default)s)")
        command.add_argument("--seed", type=int, default=0, help="of the random actions")
        if name == "bench":
            command.add_argument("--rounds", type=int, default=3, help="measurements of each, in turn")
    options = parser.parse_args(arguments)
    try:
        names = [find_game(name).name for name in _names(options.games)]
        if options.command == "bench":
            return bench(names, options.frames, options.rounds)
        return verify(names, options.frames, options.seed, refused() if options.games == "all" else {})
    except (UnknownGame, EmulatorUnavailable) as error:
        print(f"emulator.py: {error}", file=sys.stderr)
        return 2


def _names(text: str) -> list[str]:
    return games() if text == "all" else [g for g in TWENTY if g in games()] if text == "twenty" else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
