"""A network that is cut and disks that are full, in trainings on real processes. They need Linux and root."""

from __future__ import annotations

import faulty
import pytest

faulty.skip_if_impossible()
pytestmark = pytest.mark.timeout(600)


def test_without_a_network_training_goes_on_and_the_node_takes_part_again():
    (cut,) = faulty.measured("network-cut")
    assert cut["what fails"].startswith("the network")
    assert float(cut["back"]) > 0 and float(cut["pause"]) >= 0 and cut["ended"] == cut["gone"] == ""


def test_with_full_disks_training_goes_on_and_all_nodes_take_part_again():
    run, node = faulty.measured("run-disk-full", "node-disk-full")
    assert run["what fails"].startswith("the disk of the run")
    assert float(run["back"]) >= 0 and run["pause"] == run["ended"] == run["gone"] == ""  # they do not apply
    assert node["what fails"].startswith("the disk of a computer")
    assert float(node["back"]) >= 0 and float(node["pause"]) >= 0 and node["ended"] == node["gone"] == ""
