import os

import numpy as np
import pytest
from rings import LAYOUT, VECTOR, episodes, make_segment, write

from gunreal.experience.replay import FIRST
from gunreal.experience.segment import Layout, Segment


def test_layout_counts_every_byte_and_aligns_every_array():
    layout = LAYOUT._replace(mailboxes={"pc.bootstrap": ((5, 7), "float32"), "flag": ((), "bool")})
    assert layout.ring == 12 + 3 * 2 + 4
    segment = Segment(layout)
    assert set(segment.arrays) == set(layout.arrays())
    assert segment.arrays["frame"].shape == (3, 22, 2, 3, 5)
    assert segment.arrays["depth"].shape == (3, 22, 2)
    assert segment.arrays["pc.bootstrap"].shape == (3, 5, 7)
    assert segment.arrays["flag"].shape == (3,)
    starts = [array.__array_interface__["data"][0] for array in segment.arrays.values()]
    ends = [start + array.nbytes for start, array in zip(starts, segment.arrays.values(), strict=True)]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert starts[0] + layout.nbytes() == -(-ends[-1] // 64) * 64
    assert segment.allowance == layout.slots == 1
    assert [name for name, array in segment.arrays.items() if array.any()] == ["allowance"]  # fresh memory is zero
    for number, array in enumerate(segment.arrays.values(), 1):
        array[...] = array.dtype.type(number)
    for number, array in enumerate(segment.arrays.values(), 1):
        assert (array == array.dtype.type(number)).all()


def test_close_gives_the_descriptor_back_and_keeps_arrays_in_use():
    segment = Segment(LAYOUT)
    fd, reward = segment.fd, segment.arrays["reward"]
    segment.close()
    segment.close()
    with pytest.raises(OSError):
        os.fstat(fd)
    reward[:] = 1
    assert reward.sum() == reward.size


def test_the_past_of_a_recurrent_network():
    """The state before each sequence, and the action and clipped reward before each step, none before an episode."""
    spec = VECTOR._replace(state=2)
    flags = episodes("--T --")  # rows 0 to 5; row 3 is the first episode's last observation, row 4 starts the second
    segment = make_segment(spec, flags, rewards=[0.5, -3, 1, 0, 2, 0], actions=[1, 2, 0, 1, 2, 1])
    segment.arrays["state"][0, :7] = np.arange(14).reshape(7, 2)
    past = segment.past(np.array([0, 0]), np.array([[0, 1, 2], [3, 4, 5]]))
    np.testing.assert_array_equal(past.state, [[0, 1], [6, 7]])
    np.testing.assert_array_equal(past.last_action, [[-1, 1, 2], [0, -1, 2]])
    np.testing.assert_array_equal(past.last_reward, [[0, 0.5, -1], [1, 0, 1]])
    assert past.last_action.dtype == np.int32 and past.last_reward.dtype == np.float32
    newest = segment.past(np.array([0]), np.array([[6]]))
    assert newest.last_action[0, 0] == 1 and newest.last_reward[0, 0] == 0
    assert make_segment(VECTOR, flags).past(np.array([0]), np.array([[0]])) is None


def test_the_past_after_the_ring_has_come_round():
    segment = make_segment(VECTOR._replace(state=2), [], replay_size=8)
    end = 3 * segment.layout.ring + 5
    for step in range(end + 1):
        write(segment, 0, step, 0, 0 if step else FIRST, action=step % 3, state=[step, -step])
    segment.end[0] = end
    steps = np.arange(end - 8, end - 3)[:, None] + np.arange(4)
    past = segment.past(np.zeros(5, int), steps)
    np.testing.assert_array_equal(past.state, steps[:, :1] * [1, -1])
    np.testing.assert_array_equal(past.last_action, (steps - 1) % 3)


def test_a_recurrent_ring_has_room_for_the_row_before_and_the_state_ahead():
    layout = Layout(VECTOR._replace(state=2), 1, 1, 100, {}, 1, {})
    assert layout.ring == Layout(VECTOR, 1, 1, 100, {}, 1, {}).ring + 2
    assert layout.arrays()["state"] == ((1, layout.ring, 2), np.float32)
    assert "state" not in Layout(VECTOR, 1, 1, 100, {}, 1, {}).arrays()
