"""Verifies and measures everything that needs a GPU, in less than ten minutes, and writes one JSON and one page.

  python tools/gpu.py --json gpu.json --page gpu.md
  python tools/gpu.py --dry

It compares the emulator on the GPU with that on the CPU for all games in one batch, and measures
  emulator      frames per second by number of consoles and by game, and the occupancy of the GPU
  whole system  environments, predictions, training, and acting and training together, as in tools/benchmark.py
  device runs   training with --runner device, by number of agents

A part that fails is reported, and the others follow. What does not fit into --minutes is left out and named. With
--dry, the CPU takes the place of the GPU in small measurements, which tests everything but the GPU itself.
Exit codes: 0 on success, 1 if a part failed or a game differs, 2 for bad input or if there is no GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common.command_line import Parser, check_positive, check_writable, say
from emulation import gpu_page
from gunreal_emulator import EmulatorUnavailable, UnknownGame
from gunreal_emulator import games as all_games
from gunreal_emulator.device_engine import find_device
from gunreal_emulator.games import find_game
from measuring import measure
from measuring.machine import machine
from measuring.training_rate import training_rate

from gunreal.config.schema import Config, ConfigError
from gunreal.train import prepare

SIZES, SAMPLE = (256, 1024, 4096, 16384, 32768), ("breakout", "ms_pacman", "montezuma_revenge", "seaquest")
DEVICE_AGENTS = (4096, 256, 32768)
DEVICE_RUN = {"objective": "a3c", "t_max": 16}  # 16 groups of agents. A batch of all, as PPO's, would not fit
TASK_SETS = {"base": (), "pc,vr,rp": ("pc", "vr", "rp")}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the options. Raises ConfigError for a bad one."""
    parser = Parser("gpu.py", __doc__)
    parser.add_argument(
        "--json", type=Path, default=Path("gpu.json"), help="file for all numbers (default: %(default)s)"
    )
    parser.add_argument("--page", type=Path, default=Path("gpu.md"), help="file for the page (default: %(default)s)")
    parser.add_argument("--games", default="all", help="games to verify: all, or comma-separated names (default: all)")
    parser.add_argument("--env", default="ALE/Pong-v5", help="environment of the whole system (default: %(default)s)")
    parser.add_argument("--backend", default="jax", help="backend of the whole system (default: %(default)s)")
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


def systems(options: argparse.Namespace) -> dict[str, Config]:
    """Returns the configurations of the whole system, which have been checked."""
    if options.backend not in ("jax", "tensorflow"):
        raise ConfigError(f"--backend is {options.backend}, but must be jax or tensorflow")
    config = Config(env=options.env, backend=options.backend, steps=10**9, name="")
    if options.dry:
        config = dataclasses.replace(config, agents=4, agents_per_process=2, min_batch=40)
    found = {name: dataclasses.replace(config, tasks=tasks) for name, tasks in TASK_SETS.items()}
    for config in found.values():
        prepare(config)
    return found


def gpu_name() -> str:
    """Returns the name of the GPU, its driver and its clock, or the reason why they are unknown."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({error})"


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

    def page(self) -> str:
        """Returns the page in Markdown."""
        return gpu_page.page(self.about, list(self.parts.values()))

    def failed(self) -> bool:
        """Whether a part failed or a game differs."""
        return any("error" in part or any(part.get("differences", {}).values()) for part in self.parts.values())


def run(report: Report, options: argparse.Namespace, device: Any, configs: dict[str, Config]) -> None:
    """Verifies and measures all parts."""
    from emulation import device as emulator

    consoles, steps, seconds, road = (2, 20, 2.0, "jax") if options.dry else (32, 250, 6.0, "cuda")
    spread = 8 if options.dry else emulator.SPREAD
    report.add("equality", lambda: emulator.compare(options.games, consoles, steps, road), kind="verify")
    if not options.dry:
        report.add("occupancy", lambda: emulator.occupancy(device), kind="occupancy")
    for of in rates(options.dry):  # before the parts with processes of their own, which may take all of the time
        details = "" if of["observations"] else " without observations"
        details += f", {of['lanes']} for each warp" if "lanes" in of else ""
        work = partial(emulator.rate, seconds=seconds / 3, spread=spread, **of)
        report.add(f"{', '.join(of['games'])}, {of['consoles']} consoles{details}", work, 10, kind="rate", **of)
    for agents in (8,) if options.dry else DEVICE_AGENTS:
        fields = {"runner": "device", "env": options.env, "agents": agents, **DEVICE_RUN}
        work = partial(training_rate, fields, seconds / 3, 300.0 if options.dry else 90.0)
        report.add(f"device run, {agents} agents", work, 45, kind="device", agents=agents)
    for name, config in configs.items():
        work = partial(measure.row, config, seconds)
        report.add(f"whole system, {name}", work, 30 + 12 * seconds, kind="system", tasks=name)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 1 if a part failed or a game differs, 2 for bad input or without a GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to the processes of the system
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        device = find_device("jax" if options.dry else "cuda")
        from gunreal_emulator import ffi

        ffi.compiled("" if options.dry else ffi.architecture(device))
        configs = systems(options)
    except (ConfigError, UnknownGame, EmulatorUnavailable) as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    place = {"date": time.strftime("%Y-%m-%d"), "device_kind": device.device_kind,
             "device": "the CPU instead of a GPU" if options.dry else gpu_name()}  # fmt: skip
    report = Report(machine() | place, options.json, options.page, options.minutes)
    run(report, options, device, configs)
    print("\n" + report.page())
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
