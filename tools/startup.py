"""How long does a run take to start?

  python tools/startup.py --env gunreal/Catch-v0 --tasks pc,vr,rp

The program starts trainings one after the other, each in a new process, and ends each at its first line of metrics. It
prints when a run reaches each milestone, in seconds since the command, as the median over the repeats. CPU seconds are
those of the server's process and do not depend on what else the machine does.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from common.command_line import Parser, check_positive, check_processes

from gunreal.config.files import save
from gunreal.config.schema import Config, ConfigError

_CHILD = "--child"
_POLL = 0.005  # seconds


class Clock:
    """Wall and CPU seconds since this process began, by milestone."""

    def __init__(self) -> None:
        self.reached: dict[str, tuple[float, float]] = {}
        self._process = psutil.Process()

    def __call__(self, milestone: str) -> None:
        """Notes the time if the milestone has not been reached before."""
        used = self._process.cpu_times()
        now = time.time() - self._process.create_time(), used.user + used.system
        self.reached.setdefault(milestone, now)

    def after(self, owner: Any, name: str, milestone: str) -> None:
        """Notes the time when `owner.name` returns."""
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self(milestone)
            return result

        setattr(owner, name, timed)


def child(argv: Sequence[str]) -> None:
    """Trains until the first line of metrics. Prints the times as JSON."""
    clock = Clock()
    train: Any = importlib.import_module("gunreal.train")
    config, _ = train.flags.from_flags(argv)
    clock("gunreal imported")
    system: Any = importlib.import_module("gunreal.runtime.system")
    select, start = system.devices.select_for, system.System.__init__

    def selected(*args: Any) -> None:
        select(*args)
        importlib.import_module("keras")

    def started(self: Any, *args: Any) -> None:
        start(self, *args)
        threading.Thread(target=_watch, args=(self, clock), daemon=True).start()

    system.devices.select_for, system.System.__init__ = selected, started
    clock.after(train, "prepare", "environment checked")
    clock.after(system.devices, "select_for", "framework imported")
    clock.after(system, "build_learner", "network built")
    clock.after(system, "make_layout", "functions traced")
    try:
        train.train(config, show=False)
    except (ConfigError, train.AgentFailure) as error:
        sys.exit(str(error))  # without a traceback, because `measure` shows the last line
    print(json.dumps(clock.reached))


def _watch(system: Any, clock: Clock) -> None:
    metrics, lines = system.metrics, system.run_dir / "metrics.jsonl"
    waits: dict[str, Callable[[], int]] = {
        "first agent step": lambda: metrics.step,
        "first trained step": lambda: metrics.steps_trained,
        "first line of metrics": lambda: lines.stat().st_size,
    }
    for milestone, reached in waits.items():
        while not reached():
            time.sleep(_POLL)
        clock(milestone)
    system.stop("measured")


def measure(config: Config) -> dict[str, tuple[float, float]]:
    """Starts one training. Returns wall and CPU seconds by milestone.

    Raises:
      ConfigError: the training failed. The message is its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "startup.toml")
        save(dataclasses.replace(config, logdir=folder, name="startup"), file)
        command = [sys.executable, __file__, _CHILD, "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(done.stderr.strip().rpartition("\n")[2] or f"a run ended with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def table(runs: Sequence[dict[str, tuple[float, float]]]) -> str:
    """The medians over the runs, with a row for each milestone."""
    rows, before = ["seconds    CPU  of this phase  milestone"], 0.0
    for milestone in runs[0]:
        wall, cpu = (statistics.median(run[milestone][i] for run in runs) for i in (0, 1))
        rows.append(f"{wall:7.1f} {cpu:6.1f} {cpu - before:14.1f}  {milestone}")
        before = cpu
    return "\n".join(rows)


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        parser = Parser("startup.py", __doc__)
        parser.add_argument("--repeats", type=int, default=3, metavar="N", help="number of trainings (default: 3)")
        options, config, _ = parser.parse_with_training_flags(argv)
        check_positive("repeats", options.repeats)
        check_processes(config)
        print(table([measure(config) for _ in range(options.repeats)]))
    except ConfigError as error:
        print(f"startup.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        child([__file__, *sys.argv[2:]])
    else:
        sys.exit(main(sys.argv[1:]))
