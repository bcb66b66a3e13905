"""A network that is cut and a full disk, in trainings on real processes, as the benchmark of faults makes them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import namespaces

from gunreal.config.schema import ConfigError

TOOL = Path(__file__).parents[2] / "tools" / "cluster_faults.py"
if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)
try:
    namespaces.check()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)


def measured(fault: str) -> dict[str, str]:
    """The benchmark's row. It runs in a process of its own: Ray reads its token once per process."""
    done = subprocess.run([sys.executable, TOOL, "--faults", fault], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, row = ([cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines())
    return dict(zip(head, row, strict=True))


def test_without_a_network_training_goes_on_and_the_node_takes_part_again():
    cut = measured("network-cut")
    assert cut["what fails"].startswith("the network")
    assert float(cut["back"]) > 0 and float(cut["pause"]) >= 0 and cut["ended"] == cut["gone"] == ""


def test_with_a_full_disk_training_goes_on_and_all_nodes_take_part_again():
    node = measured("node-disk-full")
    assert node["what fails"].startswith("the disk of a computer")
    assert float(node["back"]) >= 0 and float(node["pause"]) >= 0 and node["ended"] == node["gone"] == ""
