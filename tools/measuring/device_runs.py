"""Measures the training rate of device runs, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LINES = 4  # of metrics; the first ones contain the compilation


def device_run(env: str, agents: int, seconds: float, patience: float) -> dict[str, Any]:
    """Trains with `--runner device`, and stops the process after a few lines of metrics.

    Args:
      env: id of the environment.
      agents: number of agents.
      seconds: time between lines of metrics.
      patience: time for the whole measurement, in seconds.

    Returns:
      "steps": agent steps per second, which are acted and trained on. "start": seconds until the first steps.

    Raises:
      RuntimeError: the process ended, or the time was over. The message is the last line of the output.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = {"runner": "device", "env": env, "agents": agents, "tasks": "", "steps": 10**12, "logdir": folder,
                 "name": "run", "metrics_seconds": seconds, "checkpoint_minutes": 10**6}  # fmt: skip
        command = [sys.executable, "-m", "gunreal.train", *[f"--{name}={value}" for name, value in flags.items()]]
        output = Path(folder) / "output"
        start = time.monotonic()
        with output.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None and time.monotonic() - start < patience:
                rows = [row for row in _metrics(Path(folder) / "run" / "metrics.jsonl") if row["tps"]]
                if len(rows) >= LINES:
                    rate = statistics.median(row["tps"] for row in rows[LINES // 2 :])
                    return {"steps": rate, "start": rows[0]["seconds"]}
                time.sleep(0.2)
        finally:
            process.kill()  # a checkpoint of thousands of consoles would take long
            process.wait()
        said = output.read_text().strip().splitlines()
        raise RuntimeError(said[-1] if said else f"no output in {patience:g} s")


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the complete lines of a run's metrics."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
