from __future__ import annotations

import types

import numpy as np

from gunreal.cluster.coordinator import Coordinator
from gunreal.cluster.node import Description, Refused

STATE = {"weights/a": np.zeros(3), "optimizer/000": np.array(0), "version": np.array(0)}


def test_a_checkpoint_of_another_network_refuses_each_machine():
    """No later machine finds a model without reducers."""
    refused = []
    found = Coordinator.__new__(Coordinator)
    found._model = found._shards = None
    found.resumed = types.SimpleNamespace(state=STATE | {"weights/a": np.zeros(4)})
    found._fleet = types.SimpleNamespace(lost=lambda member, error: refused.append((member, error)))
    for number in range(2):
        found._welcome(number, Description(STATE, {}, 1))
    assert [member for member, _ in refused] == [0, 1]
    assert all(isinstance(error, Refused) and "weights/a has shape (4,)" in str(error) for _, error in refused)
    assert found._model is None
