"""Full disks, in a training on real processes. They need Linux and root."""

from __future__ import annotations

import faulty
import pytest

faulty.skip_if_impossible()


@pytest.mark.timeout(600)
def test_training_goes_on_and_all_nodes_take_part_again():
    run, node = faulty.measured("run-disk-full", "node-disk-full")
    assert run["what fails"].startswith("the disk of the run")
    assert float(run["back"]) > 0 and run["pause"] == run["ended"] == run["gone"] == ""  # they do not apply
    assert node["what fails"].startswith("the disk of a computer")
    assert float(node["back"]) > 0 and float(node["pause"]) >= 0 and node["ended"] == node["gone"] == ""
