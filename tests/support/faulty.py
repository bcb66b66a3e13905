"""Faults of computers and disks in trainings on real processes, as the benchmark of faults makes them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import namespaces

from gunreal.config.schema import ConfigError

TOOL = Path(__file__).parents[2] / "tools" / "cluster_faults.py"


def skip_if_impossible() -> None:
    """Skips the tests of a file without Ray, Linux or root."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray", allow_module_level=True)
    try:
        namespaces.check()
    except ConfigError as error:
        pytest.skip(str(error), allow_module_level=True)


def measured(*faults: str) -> list[dict[str, str]]:
    """The benchmark's row for each fault. It runs in a process of its own: Ray reads its token once per process."""
    command = [sys.executable, TOOL, "--faults", ",".join(faults)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]
