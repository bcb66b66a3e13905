"""Describes the machine and the versions of packages, for reports of measurements."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from gunreal.learning import devices

_PACKAGES = ("gunreal", "keras", "tensorflow", "tensorflow-cpu", "jax", "numpy")


def machine() -> dict[str, Any]:
    """Returns the processor, the number of cores, the GPUs, and the versions of Python and of packages."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    processor = names[0] if names else platform.processor() or platform.machine()
    return {
        "processor": processor,
        "cores": devices.cores(),
        "gpus": nvidia_smi("name"),
        "python": platform.python_version(),
        "versions": versions,
    }


def nvidia_smi(field: str) -> list[str]:
    """Returns a field of each GPU as nvidia-smi shows it, or nothing without nvidia-smi."""
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.strip().splitlines()
