import broken_tasks
import pytest

from gunreal.config.schema import ConfigError
from gunreal.experience.returns import n_step_returns
from gunreal.experience.spec import RecordedField, Spec
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


def test_target_arrays_of_a_task_that_records():
    class Depth(RewardPrediction):
        def record(self, spec):
            return {"depth": RecordedField("depth_map", (3, 2), "float32")}

        def targets(self, replay, sequence, bootstrap):
            return {"depth": replay.get("depth", *sequence)}

    assert target_arrays(Depth(), SPEC) == {"depth": ((3, 3, 2), "float32")}


class Misspelt(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": replay.get("rewards", *sequence)}


class Unfit(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": n_step_returns(replay.get("reward", *sequence), 0.9, bootstrap)}


class MisspeltSample(ValueReplay):
    def sample(self, replay, rng):
        return replay.get("rewards", 0, 1)


class Early(ValueReplay):
    def sample(self, replay, rng):
        return replay.end, 1


@pytest.mark.parametrize(
    ("task", "shape", "message"),
    [
        (broken_tasks.Ragged, (), r"targets\(\) gives {'returns': .* and .*; pad to fixed shapes"),
        (broken_tasks.NothingEver, (), r"sample\(\) found nothing in 100 random steps"),
        (broken_tasks.NoArray, (), "target 'returns' is of type list; return a NumPy array$"),
        (broken_tasks.NoTable, (), r"targets\(\) returns a NoneType; return a dict of NumPy arrays$"),
        (broken_tasks.NamesMask, (), "target 'mask' has a reserved name; choose another name$"),
        (broken_tasks.Doubles, (), "target 'returns' is float64; return float32"),
        (broken_tasks.Words, (), "target 'returns' is <U4; return numbers"),
        (Misspelt, (), r"targets\(\) with a bootstrap of shape \(\) failed: .*test_calls.py:\d+\)$"),
        (Unfit, (1,), r"targets\(\) with a bootstrap of shape \(1,\) failed: .*test_calls.py:\d+\)$"),
        (MisspeltSample, (), r"sample\(\) failed: KeyError: .*test_calls.py:\d+\)$"),
        (Early, (), r"sample\(\) returns steps (\d+) to \1, but the replay holds steps 0 to \d+$"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(task, shape, message):
    with pytest.raises(ConfigError, match=f"^task 'vr': {message}"):
        target_arrays(task(), SPEC, shape)
