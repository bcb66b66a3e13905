from __future__ import annotations

import os
import pickle
import sys
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from gunreal.config.schema import ConfigError
from gunreal.experience import queues
from gunreal.runtime import lockstep
from gunreal.tasks import base


def test_saved_state_is_loaded():
    rng = np.random.default_rng([3, 4])
    rng.random(7)
    records = np.array([(1, 2, 300)], queues.ROLLOUT)
    state = {
        "rngs": [rng],
        "score": np.array([1.5, np.nan]),
        "waiting": records,
        "awaited": {2, 1},
        "first": np.int64(5),
    }
    state |= {"sequences": {"vr": [(3, 4), None]}, "actions": [[1, 2], []]}
    found = lockstep.unpack(lockstep.pack(state))
    np.testing.assert_array_equal(found["score"], state["score"])
    assert found["waiting"].dtype == records.dtype and found["waiting"].tolist() == records.tolist()
    assert found["rngs"][0].random(3).tolist() == rng.random(3).tolist()
    assert found["sequences"] == {"vr": [[3, 4], None]} and found["actions"] == [[1, 2], []]
    assert found["awaited"] == {1, 2} and found["first"] == 5


class Evil:
    def __reduce__(self):
        return os.mkdir, (str(Evil.folder),)


def test_no_checkpoint_runs_code(tmp_path):
    Evil.folder = tmp_path / "evil"
    with pytest.raises(ConfigError, match="cannot be read: it holds posix.mkdir; start a new run"):
        lockstep.unpack(pickle.dumps({"workers": Evil()}))
    assert not Evil.folder.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        lockstep.unpack(b"{")


def test_pickled_state_from_before_the_first_release_is_read():
    rng = np.random.default_rng([3, 4])
    state = {"rng": rng, "score": np.arange(3.0), "awaited": {1}, "waiting": np.zeros(2, queues.ROLLOUT)}
    found = lockstep.unpack(pickle.dumps(state | {"first": np.int64(5)}))
    assert found["rng"].random() == rng.random() and found["score"].tolist() == [0, 1, 2] and found["awaited"] == {1}
    assert found["waiting"].dtype == queues.ROLLOUT and found["first"] == 5


def test_objects_from_before_the_first_release_are_read_as_plain_values(monkeypatch):
    """Such checkpoints hold groups and sequences as objects of `gunreal.agent` and `gunreal.tasks.base`."""

    class Group:
        def __init__(self, sequences):
            self.first, self.closed, self.sequences = 20, 3, sequences

    class Sequence(NamedTuple):
        first: int
        length: int

    agent = ModuleType("gunreal.agent")
    for cls, module in ((Group, agent), (Sequence, base)):
        cls.__module__, cls.__qualname__ = module.__name__, cls.__name__
        monkeypatch.setattr(module, cls.__name__, cls, raising=False)
    monkeypatch.setitem(sys.modules, "gunreal.agent", agent)
    blob = pickle.dumps([Group({"vr": [Sequence(4, 2), None]})])
    monkeypatch.undo()
    assert not hasattr(base, "Sequence") and "gunreal.agent" not in sys.modules
    found = lockstep.unpack(blob)
    assert found == [{"first": 20, "closed": 3, "sequences": {"vr": [base.ReplaySequence(4, 2), None]}}]
