"""Measures the training rate of any run in a process of its own, and how busy a GPU is."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring.machine import nvidia_smi

LINES = 4  # of metrics; the first ones contain the compilation
# The first checkpoint of a run is due after its first steps. That of thousands of consoles has gigabytes.
PROGRAM = """
from gunreal.runtime.training import Training
from gunreal.train import command
Training.save = lambda self: None
command()
"""


def training_rate(fields: Mapping[str, Any], seconds: float, patience: float) -> dict[str, Any]:
    """Trains without checkpoints, and stops the process after a few lines of metrics.

    Args:
      fields: fields of `gunreal.Config`, which are not tables.
      seconds: time between lines of metrics.
      patience: time for the whole measurement, in seconds.

    Returns:
      "steps": agent steps per second, which are acted and trained on. "updates": updates per second. "start": seconds
      until the first steps. "gpu": the lowest and the highest use of the GPU in percent, where nvidia-smi tells it.

    Raises:
      RuntimeError: the process ended, or the time was over. The message is the last line of the output.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = {**fields, "tasks": ",".join(fields.get("tasks", ())), "steps": 10**12, "logdir": folder,
                 "name": "run", "metrics_seconds": seconds}  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, *[f"--{name}={value}" for name, value in flags.items()]]
        output = Path(folder) / "output"
        start, used = time.monotonic(), list[float]()
        with output.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None and time.monotonic() - start < patience:
                used += _gpu_use()
                rows = [row for row in _metrics(Path(folder) / "run" / "metrics.jsonl") if row["tps"]]
                if len(rows) >= LINES:
                    late, busy = rows[LINES // 2 :], used[len(used) // 2 :]
                    updates = (late[-1]["updates"] - rows[0]["updates"]) / (late[-1]["seconds"] - rows[0]["seconds"])
                    found = {"steps": statistics.median(row["tps"] for row in late), "updates": updates}
                    return found | {"start": rows[0]["seconds"], "gpu": [min(busy), max(busy)] if busy else []}
                time.sleep(0.2)
        finally:
            process.kill()  # agent processes end by themselves
            process.wait()
        said = output.read_text().strip().splitlines()
        raise RuntimeError(said[-1] if said else f"no output in {patience:g} s")


def _gpu_use() -> list[float]:
    """The use of each GPU in percent, or nothing without nvidia-smi."""
    return [float(use) for use in nvidia_smi("utilization.gpu") if use.isdigit()]


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the complete lines of a run's metrics."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
