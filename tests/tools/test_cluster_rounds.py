from __future__ import annotations

import cluster_rounds
import numpy as np
from ray_standin import Engine

from gunreal.cluster import coordinator


def test_rounds_are_measured(monkeypatch):
    """Each gradient of a sleeping node has as many slices as there are reducers."""
    monkeypatch.setattr(coordinator, "Engine", lambda config: Engine("a"))
    options = cluster_rounds.parse(["--weights", "10", "--reducers", "2", "--compute", "0.001", "--seconds", "0.2"])
    line = cluster_rounds.measure(options, 2)
    assert line["contributions"] == 2 and line["replaced"] == 0 and np.isfinite(line["grad_norm"])
