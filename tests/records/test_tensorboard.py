from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from gunreal.records.tensorboard import EventFile


def events(folder: Path) -> list[Event]:
    """All records of the folder's only event file: length, its CRC, data, its CRC."""
    (path,) = folder.glob("events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def test_numbers_become_scalars(tmp_path):
    file = EventFile(tmp_path)
    assert list(tmp_path.iterdir()) == []
    file.add({"step": 7, "loss_pc": 0.5, "pps": 3, "score_mean": None, "stopped_by": "steps"})
    version, event = events(tmp_path)  # there before the file is closed
    file.close()
    assert version.file_version == "brain.Event:2"
    assert event.step == 7
    assert {value.tag: value.simple_value for value in event.summary.value} == {"loss/pc": 0.5, "pps": 3.0}


def test_results_of_an_evaluation_are_at_the_step_of_its_weights(tmp_path):
    file = EventFile(tmp_path)
    file.add({"step": 30, "pps": 1.0, "eval_step": 20, "eval_score_mean": 0.5})
    file.add({"step": 40, "pps": 2.0, "eval_step": None, "eval_score_mean": None})
    file.close()
    found = [(event.step, {v.tag: v.simple_value for v in event.summary.value}) for event in events(tmp_path)[1:]]
    assert found == [(30, {"pps": 1.0}), (20, {"eval/score_mean": 0.5}), (40, {"pps": 2.0})]


@pytest.mark.parametrize("step", [20, 0])
def test_a_resumed_run_marks_where_it_goes_on(tmp_path, step):
    """Also if it starts again at step 0."""
    (tmp_path / "events.before").touch()
    file = EventFile(tmp_path, step=step)
    file.add({"step": 25, "pps": 1.0})
    file.close()
    _, start, event = events(tmp_path)
    assert (start.session_log.status, start.step, event.step) == (SessionLog.START, step + 1, 25)


def test_errors_are_for_the_caller_and_another_try_works(tmp_path):
    file = EventFile(tmp_path / "later")
    with pytest.raises(OSError):
        file.add({"step": 1, "pps": 1.0})
    (tmp_path / "later").mkdir()
    file.add({"step": 2, "pps": 1.0})
    file.close()
    assert [event.step for event in events(tmp_path / "later")] == [0, 2]
