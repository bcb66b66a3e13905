from __future__ import annotations

import pytest
from training import Training

from gunreal.config.schema import ConfigError
from gunreal.experience.spec import RecordedField, Spec
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay

SPEC = Spec((3,), 2, "float32", num_actions=2, t_max=4)
DEPTH = RecordedField("depth", (), "float32")


def recording(cls, **fields):
    """An instance of a task that records `fields`."""

    class Recording(cls):
        def record(self, spec):
            return fields

    return Recording()


def test_all_fields_by_name():
    """Tasks may share a field."""
    fast = RecordedField("speed", (2,), "uint8")
    tasks = [recording(ValueReplay, deep=DEPTH), recording(RewardPrediction, fast=fast, deep=DEPTH)]
    assert recorded_fields(tasks, SPEC) == {"deep": DEPTH, "fast": fast}
    tasks.append(recording(RewardPrediction, deep=DEPTH._replace(shape=(1,))))
    with pytest.raises(ConfigError, match="task 'rp' records 'deep', which task 'vr' records differently"):
        recorded_fields(tasks, SPEC)


@pytest.mark.parametrize(
    "name", ["reward", "frame", "end", "start", "state", "vector", "waits", "vr:returns", "vr.sequence"]
)
def test_the_rings_own_names_are_refused(name):
    """Also that of the recurrent state where the network has none: the next run may."""
    with pytest.raises(ConfigError, match=f"task 'vr' records '{name}', a reserved name"):
        recorded_fields([recording(ValueReplay, **{name: DEPTH})], SPEC)


def test_device_runs_record_entries_of_a_dict(tmp_path):
    pytest.importorskip("jax")
    run = "--env recall:functional --env_args told=true --frame_size 20 --frame_stack 1 --network mlp --hidden 16"
    run += " --tasks recall:Sides --runner device --agents 4 --t_max 5 --steps 200"
    with Training(tmp_path, *run.split()) as training:
        assert training.end() == 0, training.stderr
        last = training.lines()[-1]
        assert last["sides_differs"] == 0 and last["sides_agrees"] > 0.8  # the first update has no sequences
