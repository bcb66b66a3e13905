import numpy as np
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


def test_target_arrays_of_tasks_that_give_none():
    class Never(ValueReplay):
        def sample(self, replay, rng):
            return None

    class Lists(RewardPrediction):
        def targets(self, replay, sequence, bootstrap):
            return {"class": 1}

    class Doubles(RewardPrediction):
        def targets(self, replay, sequence, bootstrap):
            return {"class": np.zeros(3)}

    class Nothing(RewardPrediction):
        def targets(self, replay, sequence, bootstrap):
            return None

    class Words(RewardPrediction):
        def targets(self, replay, sequence, bootstrap):
            return {"class": np.array("good")}

    class Masks(RewardPrediction):
        def targets(self, replay, sequence, bootstrap):
            return {"mask": np.zeros(3, np.float32)}

    class Ragged(ValueReplay):
        def targets(self, replay, sequence, bootstrap):
            return {"returns": np.zeros(sequence.length, np.float32)}

    with pytest.raises(ConfigError, match=r"'vr': targets\(\) gives {'returns': .* and .*; pad to fixed shapes"):
        target_arrays(Ragged(), SPEC, ())
    with pytest.raises(ConfigError, match="'vr': sample\\(\\) found nothing in 100 random steps"):
        target_arrays(Never(), SPEC, ())
    with pytest.raises(ConfigError, match="^task 'rp': target 'class' is of type int; return a NumPy array$"):
        target_arrays(Lists(), SPEC)
    with pytest.raises(
        ConfigError, match=r"^task 'rp': targets\(\) returns a NoneType; return a dict of NumPy arrays$"
    ):
        target_arrays(Nothing(), SPEC)
    with pytest.raises(ConfigError, match="^task 'rp': target 'mask' has a reserved name; choose another name$"):
        target_arrays(Masks(), SPEC)
    with pytest.raises(ConfigError, match="'rp': target 'class' is float64; return float32"):
        target_arrays(Doubles(), SPEC)
    with pytest.raises(ConfigError, match="'rp': target 'class' is <U4; return numbers"):
        target_arrays(Words(), SPEC)


def test_an_error_in_targets_is_one_line_with_its_place():
    class Misspelt(ValueReplay):
        def targets(self, replay, sequence, bootstrap):
            return {"returns": replay.get("rewards", *sequence)}

    class Unfit(ValueReplay):
        def targets(self, replay, sequence, bootstrap):
            return {"returns": n_step_returns(replay.get("reward", *sequence), 0.9, bootstrap)}

    failed = r"^task 'vr': targets\(\) with a bootstrap of shape {} failed: .*test_calls.py:\d+\)$"
    with pytest.raises(ConfigError, match=failed.format(r"\(\)")):
        target_arrays(Misspelt(), SPEC, ())
    with pytest.raises(ConfigError, match=failed.format(r"\(1,\)")):
        target_arrays(Unfit(), SPEC, (1,))


def test_an_error_in_sample_is_one_line_with_its_place():
    class Misspelt(ValueReplay):
        def sample(self, replay, rng):
            return replay.get("rewards", 0, 1)

    class Early(ValueReplay):
        def sample(self, replay, rng):
            return replay.end, 1

    with pytest.raises(ConfigError, match=r"^task 'vr': sample\(\) failed: KeyError: .*test_calls.py:\d+\)$"):
        target_arrays(Misspelt(), SPEC, ())
    with pytest.raises(
        ConfigError, match=r"sample\(\) returns steps (\d+) to \1, but the replay holds steps 0 to \d+$"
    ):
        target_arrays(Early(), SPEC, ())
