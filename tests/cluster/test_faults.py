"""A network that is cut, in a training on real processes. It needs Linux and root."""

from __future__ import annotations

import faulty
import pytest

faulty.skip_if_impossible()


@pytest.mark.timeout(600)
def test_training_goes_on_and_the_node_takes_part_again():
    (cut,) = faulty.measured("network-cut")
    assert cut["what fails"].startswith("the network")
    assert float(cut["back"]) > 0 and float(cut["pause"]) >= 0 and cut["ended"] == cut["gone"] == ""
