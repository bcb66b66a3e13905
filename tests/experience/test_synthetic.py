import numpy as np
import pytest

from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED
from gunreal.experience.spec import RecordedField, Spec
from gunreal.experience.synthetic import synthetic_segment

SPEC = Spec((1, 16, 16), 2, "uint8", num_actions=3, t_max=5)


@pytest.mark.parametrize("steps", [0, 1, 60, 1000])
def test_synthetic_experience_keeps_the_rules_of_a_ring(steps):
    segment = synthetic_segment(SPEC, {"depth": RecordedField("depth", (2,), "int16")}, steps)
    replay = segment.replay(np.zeros(1, int))
    assert replay.end == steps and replay.end - replay.oldest == (count := min(steps, 100))
    if not count:
        return
    flags, age, reward = (replay.get(name, replay.oldest, count)[0] for name in ("flags", "age", "reward"))
    done = flags & (TERMINATED | TRUNCATED) != 0
    np.testing.assert_array_equal(done[:-1], (flags & RESET != 0)[1:])
    np.testing.assert_array_equal((flags & RESET != 0)[:-1], (flags & FIRST != 0)[1:])
    np.testing.assert_array_equal(flags & FIRST != 0, age == 0)
    np.testing.assert_array_equal(np.diff(age.astype(int))[age[1:] > 0], 1)
    assert not reward[flags & RESET != 0].any()
    if steps == 1000:
        assert set(reward.tolist()) == {-1, 0, 1}
        assert (flags & TERMINATED).any() and (flags & TRUNCATED).any()
