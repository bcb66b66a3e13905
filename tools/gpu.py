"""Verifies and measures the emulator on a GPU, in less than ten minutes, and writes one JSON and one page.

  python tools/gpu.py --json gpu.json --page gpu.md
  python tools/gpu.py --dry

It compares the emulator on the GPU with that on the CPU for all games in one batch, and measures frames per second by
number of consoles and by game, and the occupancy of the GPU.

A part that fails is reported, and the others follow. What does not fit into --minutes is left out and named. With
--dry, the CPU takes the place of the GPU in small measurements, which tests everything but the GPU itself.
Exit codes: 0 on success, 1 if a part failed or a game differs, 2 for bad input or if there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common.command_line import Parser, check_positive, check_writable, say
from gunreal_emulator import EmulatorUnavailable, UnknownGame
from gunreal_emulator import games as all_games
from gunreal_emulator.device_engine import find_device
from gunreal_emulator.games import find_game
from measuring.machine import machine, nvidia_smi

from gunreal.config.schema import ConfigError

SIZES, SAMPLE = (256, 1024, 4096, 16384, 32768), ("breakout", "ms_pacman", "montezuma_revenge", "seaquest")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the options. Raises ConfigError for a bad one."""
    parser = Parser("gpu.py", __doc__)
    parser.add_argument(
        "--json", type=Path, default=Path("gpu.json"), help="file for all numbers (default: %(default)s)"
    )
    parser.add_argument("--page", type=Path, default=Path("gpu.md"), help="file for the page (default: %(default)s)")
    parser.add_argument("--games", default="all", help="games to verify: all, or comma-separated names (default: all)")
    parser.add_argument("--minutes", type=float, default=9.5, help="time for all parts (default: %(default)s)")
    parser.add_argument("--dry", action="store_true", help="small measurements on the CPU instead")
    options = parser.parse_args(argv)
    check_positive("minutes", options.minutes)
    check_writable(options.json, options.page)
    options.games = all_games() if options.games == "all" else options.games.split(",")
    options.games = [find_game(name).name for name in options.games]
    return options


def rates(dry: bool) -> Iterator[dict[str, Any]]:
    """Returns the arguments of `emulation.device.rate` for all measurements of the emulator."""
    sizes = (4, 8) if dry else SIZES
    middle = sizes[len(sizes) // 2]
    for size in reversed(sizes):
        for seen in (True, False):
            yield {"games": ["pong"], "consoles": size, "observations": seen}
    for game in SAMPLE[: 1 if dry else None]:
        yield {"games": [game], "consoles": middle, "observations": True}
    yield {"games": ["pong", *SAMPLE], "consoles": 5 if dry else sizes[-1] // 5 * 5, "observations": True}
    for size in sizes[:1] if dry else sizes[1:3]:
        for lanes in (4, 16, 32) if dry else (1, 2, 4, 8, 16, 32):
            yield {"games": ["pong"], "consoles": size, "observations": True, "lanes": lanes}


class Report:
    """Collects the results of parts, and writes them after each part.

    Attributes:
      parts: the results by the name of the part. The "error" of a part is the message of an exception.

    Args:
      about: what was measured on which machine.
      json: file for the numbers.
      page: file for the page.
      minutes: time for all parts.
    """

    def __init__(self, about: dict[str, Any], json: Path, page: Path, minutes: float):
        self.about, self.parts = about, dict[str, dict[str, Any]]()
        self._json, self._page, self._end = json, page, time.monotonic() + 60 * minutes

    def add(self, name: str, work: Callable[[], dict[str, Any]], needed: float = 0.0, **labels: Any) -> None:
        """Does a part unless it needs more seconds than are left."""
        if time.monotonic() + needed > self._end:
            result: dict[str, Any] = {"error": "left out, no time was left"}
        else:
            try:
                result = work()
            except Exception as error:  # the other parts are still worth having
                result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        say(f"{name}: {result.get('error') or 'done'}")
        self.parts[name] = result | labels
        self._json.write_text(json.dumps({"about": self.about, "parts": self.parts}, indent=1) + "\n")
        self._page.write_text(self.page())

    def failed(self) -> bool:
        """Whether a part failed or a game differs."""
        return any("error" in part or any(part.get("differences", {}).values()) for part in self.parts.values())

    def page(self) -> str:
        """Returns the page in Markdown: a row of a table for each rate, and a sentence for each other part."""
        about = ", ".join(f"{name} {version}" for name, version in self.about["versions"].items())
        texts = [f"# GPU\n\nMeasured on {self.about['date']} on {self.about['device']}, with {about}."]
        rows = ["| games | consoles | consoles per warp | observations | frames/s | agent steps/s | states, MiB |"]
        rows.append("|" + "---|" * 7)
        for name, part in self.parts.items():
            if "games" in part:
                numbers = [f"{part[key]:,.0f}" for key in ("frames", "steps", "mebibytes") if "error" not in part]
                cells = [", ".join(part["games"]), f"{part['consoles']:,}", str(part.get("lanes", "chosen"))]
                cells += ["yes" if part["observations"] else "no", *(numbers or [part["error"], "", ""])]
                rows.append(f"| {' | '.join(cells)} |")
            else:
                texts.append(f"**{name}**: " + (part.get("error") or _words(part)))
        return "\n\n".join([*texts, "\n".join(rows)]) + "\n"


def _words(part: dict[str, Any]) -> str:
    if "differences" not in part:
        return ", ".join(f"{value:,} {name}" for name, value in part.items())
    differ = [f"; {game}: {where}" for game, where in part["differences"].items() if where]
    return (
        f"{len(part['differences']) - len(differ)} of {len(part['differences'])} games are equal to those on the CPU "
        f"over {part['frames']:,} frames in one batch, with {part['ends']:,} ends of episodes and {part['rewards']:,} "
        f"steps with a reward, in {part['seconds']:.0f} seconds{''.join(differ)}"
    )


def run(report: Report, options: argparse.Namespace, device: Any) -> None:
    """Verifies and measures all parts."""
    from emulation import device as emulator

    consoles, steps, seconds, road = (2, 20, 0.7, "jax") if options.dry else (32, 250, 2.0, "cuda")
    spread = 8 if options.dry else emulator.SPREAD
    report.add("equality", lambda: emulator.compare(options.games, consoles, steps, road))
    if not options.dry:
        report.add("occupancy", lambda: emulator.occupancy(device))
    for of in rates(options.dry):
        details = "" if of["observations"] else " without observations"
        details += f", {of['lanes']} for each warp" if "lanes" in of else ""
        work = partial(emulator.rate, seconds=seconds, spread=spread, **of)
        report.add(f"{', '.join(of['games'])}, {of['consoles']} consoles{details}", work, 10, **of)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a part failed or a game differs, 2 for bad input or without a GPU."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        device = find_device("jax" if options.dry else "cuda")
        from gunreal_emulator import ffi

        ffi.compiled("" if options.dry else ffi.architecture(device))
    except (ConfigError, UnknownGame, EmulatorUnavailable) as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    gpu = ", driver ".join([device.device_kind, *nvidia_smi("driver_version")[:1]])
    about = {"date": time.strftime("%Y-%m-%d"), "device": "the CPU instead of a GPU" if options.dry else gpu}
    report = Report(machine() | about, options.json, options.page, options.minutes)
    run(report, options, device)
    print("\n" + report.page())
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
