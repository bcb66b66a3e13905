"""Faults of computers and disks, in a training on real processes. Their networks and disks need Linux and root."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import namespaces

from gunreal.config.schema import ConfigError

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)
try:
    namespaces.check()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

TOOL = Path(__file__).parents[2] / "tools" / "cluster_faults.py"


@pytest.mark.timeout(600)
def test_training_goes_on_and_all_nodes_take_part_again():
    # In a process of its own: Ray takes its settings and its token once per process.
    command = [sys.executable, TOOL, "--faults", "run-disk-full,node-disk-full,network-cut"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines())
    full, other, cut = (dict(zip(head, row, strict=True)) for row in rows)
    assert full["what fails"].startswith("the disk of the run") and cut["what fails"].startswith("the network")
    assert other["what fails"].startswith("the disk of a computer")
    assert float(full["back"]) > 0 and full["pause"] == full["ended"] == full["gone"] == ""  # they do not apply
    for row in (other, cut):
        assert float(row["back"]) > 0 and float(row["pause"]) >= 0 and row["ended"] == row["gone"] == ""
