from __future__ import annotations

import types

import numpy as np

from gunreal.cluster.coordinator import Coordinator, Gradient
from gunreal.cluster.node import Answer, Description, Refused

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


def test_moments_do_not_change_with_a_step_that_was_not_taken():
    """The gradient was not finite, so that no reducer has rescaled the value layer either."""
    found, refused, updated = Coordinator.__new__(Coordinator), types.SimpleNamespace(refused=0), []
    before = np.zeros(3, np.float32)

    def absorb(vectors):
        found._model.moments.vector = vectors[0]
        return []

    refused.ended = lambda seconds, computing: None
    found._report, found._engine = refused, None
    found._model = types.SimpleNamespace(version=4, moments=types.SimpleNamespace(vector=before, absorb=absorb))
    found._round = types.SimpleNamespace(began=0.0, begin=lambda now: None)
    found._shards = types.SimpleNamespace(weights=[], begin=lambda *_: None, finish=lambda _: np.inf)
    found.metrics = types.SimpleNamespace(updated=lambda *args, **options: updated.append(args))
    found._rate, found._send_all = lambda: 0.1, lambda: None
    answer = Answer(True, np.ones(3, np.float32), 80, 0.1, 0, {})
    found._gradients = [Gradient(types.SimpleNamespace(slot=0), [], answer)]
    found._update()
    assert found._model.moments.vector is before and refused.refused == 1 and not updated
    found._shards.finish = lambda _: 2.0
    found._gradients = [Gradient(types.SimpleNamespace(slot=0), [], answer)]
    found._update()
    assert found._model.moments.vector is answer.moments and updated == [(80,)]
