import broken_tasks
import numpy as np
import pytest

from gunreal.config.schema import ConfigError
from gunreal.experience.sequences import Sequences
from gunreal.experience.spec import Spec
from gunreal.tasks.calls import target_arrays
from gunreal.tasks.pixel_control import PixelControl
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay

SPEC = Spec((1, 16, 16), 2, "uint8", num_actions=3, t_max=5)


def test_target_arrays():
    assert target_arrays(ValueReplay(), SPEC, ()) == {"returns": ((5,), "float32")}
    assert target_arrays(RewardPrediction(), SPEC) == {"class": ((), "int32")}
    pc = PixelControl(cell=4)
    assert target_arrays(pc, SPEC, (4, 4)) == {"returns": ((5, 4, 4), "float32"), "action": ((5,), "int32")}


class Misspelt(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": replay.get("rewards", sequences.first, 1)}


class MisspeltSample(ValueReplay):
    def sample(self, replay, draws):
        return replay.get("rewards", 0, 1)


class NegativeLength(ValueReplay):
    def sample(self, replay, draws):
        return Sequences(np.zeros(len(draws), int), np.full(len(draws), -1))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (broken_tasks.Ragged, r"target 'returns' has the shape \[5\]; return one row for each of 20 agents$"),
        (broken_tasks.NothingEver, r"sample\(\) found nothing in 100 random steps$"),
        (broken_tasks.NoArray, "target 'returns' is of type list; return an array of replay.xp$"),
        (broken_tasks.NoTable, r"targets\(\) returns a NoneType; return a dict of arrays$"),
        (broken_tasks.NamesMask, "target 'mask' has a reserved name; choose another name$"),
        (broken_tasks.NamesProgress, "target 'progress' has a reserved name"),
        (broken_tasks.Doubles, "target 'returns' is float64; return float32$"),
        (broken_tasks.Words, "target 'returns' is <U4; return numbers$"),
        (Misspelt, r"targets\(\) failed: KeyError: .*test_calls.py:\d+\)$"),
        (MisspeltSample, r"sample\(\) failed: KeyError: .*test_calls.py:\d+\)$"),
        (broken_tasks.NoPair, r"sample\(\) returns int64 .*; return first steps and lengths, int \[20\]$"),
        (NegativeLength, r"sample\(\) returns -1 steps, but length\(\) allows 0 to 5$"),
        (broken_tasks.TooOld, r"sample\(\) returns steps -1 to \d+, but the replay holds steps 0 to \d+$"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(task, message):
    with pytest.raises(ConfigError, match=f"^task 'vr': {message}"):
        target_arrays(task(), SPEC, ())
