from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from gunreal.config.schema import ConfigError
from gunreal.experience import queues
from gunreal.runtime import lockstep


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
    with pytest.raises(ConfigError, match="cannot be read: .*; start a new run"):
        lockstep.unpack(pickle.dumps({"workers": Evil()}))
    assert not Evil.folder.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        lockstep.unpack(b"{")
