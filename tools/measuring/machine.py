"""Describes the machine and the versions of packages, for reports of measurements."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from gunreal.learning import devices

_PACKAGES = ("gunreal", "keras", "tensorflow", "tensorflow-cpu", "jax", "numpy")


def machine() -> dict[str, Any]:
    """Returns the processor, the number of cores, and the versions of Python and of packages."""
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
    return {"processor": processor, "cores": devices.cores(), "python": platform.python_version(), "versions": versions}
