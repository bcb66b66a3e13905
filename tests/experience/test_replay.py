import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from rings import VECTOR, episodes, make_replay, write

from gunreal.experience.replay import (
    ALIGN,
    FIRST,
    RESET,
    TERMINATED,
    TRUNCATED,
    Layout,
    Segment,
    empty_observations,
    stack_index,
)
from gunreal.experience.spec import Field, Spec

SPEC = Spec((2, 3, 5), 4, "uint8", num_actions=4, t_max=2)
LAYOUT = Layout(
    SPEC, agents=3, groups=2, replay_size=12, extra={"depth": Field("depth", (2,), "float32")}, slots=1, mailboxes={}
)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_room_for_observations(dtype):
    rooms = [empty_observations(SPEC._replace(dtype=dtype), count) for count in (1, 7, 500)]
    assert [room.shape for room in rooms] == [(count, 8, 3, 5) for count in (1, 7, 500)]
    assert all(room.dtype == dtype and room.flags.carray and room.ctypes.data % ALIGN == 0 for room in rooms)


def live(segment, agent, steps, seed=0, each=lambda step: None):
    """Random short episodes. Returns all that was ever written, of which the ring keeps the newest part."""
    rng = np.random.default_rng(seed)
    spec, history, flags = segment.layout.spec, [], FIRST
    for step in range(steps + 1):
        if not flags & RESET and rng.random() < 0.3:
            flags |= int(rng.choice([TERMINATED, TRUNCATED]))
        frame = rng.integers(256, size=spec.frame).astype(spec.dtype)
        row = {
            "action": rng.integers(spec.num_actions),
            "reward": np.float32(rng.normal()),
            "depth": rng.normal(size=2).astype(np.float32),
        }
        write(segment, agent, step, frame, flags, **row)
        segment.end[agent] = step
        history.append({"frame": frame, "flags": flags, **row})
        each(step)
        flags = FIRST if flags & RESET else RESET if flags & (TERMINATED | TRUNCATED) else 0
    return history


def slow_stack(history, step, stack):
    """The last `stack` frames of the step's episode; its first one repeated where there are not so many."""
    frames = [history[step]["frame"]]
    while len(frames) < stack:
        if not history[step]["flags"] & FIRST:
            step -= 1
        frames.insert(0, history[step]["frame"])
    return np.concatenate(frames)


def test_stacks_never_cross_an_episode_start_nor_the_rings_end():
    segment = Segment(LAYOUT)
    histories = []

    def compare(step):
        replay = segment.agent(1)
        steps = np.arange(replay.oldest, replay.end + 1)
        observations = replay.observations(steps)
        assert observations.shape == (len(steps), 8, 3, 5) and observations.dtype == np.uint8
        for observed, at in zip(observations, steps, strict=True):
            np.testing.assert_array_equal(observed, slow_stack(histories, int(at), 4))

    # `live` gives its history at the end, so it is lived twice: the second time compared after every step.
    histories[:] = live(segment, 1, 150)
    live(segment, 1, 150, each=compare)


def test_final_observation_is_stacked_with_its_own_episode():
    frames = np.arange(6).reshape(6, 1)
    replay = make_replay(VECTOR._replace(stack=3), episodes("--T -"), frames=frames)
    assert replay.observations(np.arange(6)).tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
        [1, 2, 3],  # RESET
        [4, 4, 4],
        [4, 4, 5],
    ]


def test_stacks_of_long_episodes_whose_age_is_saturated():
    frames = np.arange(601).reshape(-1, 1)
    replay = make_replay(VECTOR._replace(stack=4), episodes("-" * 600), frames=frames)
    assert replay.get("age", 590, 3).tolist() == [255] * 3
    assert replay.observations(np.array([600])).tolist() == [[597, 598, 599, 600]]


def test_stack_index():
    age = np.array([[0, 1, 2, 0, 1, 7], [7, 7, 7, 7, 7, 7]], np.uint8)
    index = stack_index(age, np.array([0, 0, 1, 0]), np.array([1, 9, 12, 16]), 3)
    assert index.tolist() == [[0, 0, 1], [3, 3, 3], [4, 5, 0], [3, 3, 4]]


def test_gather_of_several_agents_in_any_order():
    segment = Segment(LAYOUT)
    histories = [live(segment, agent, 60, seed=agent) for agent in range(3)]
    agents, steps = np.array([2, 0, 1, 1, 2]), np.array([60, 48, 55, 51, 49])
    out = np.zeros((5, *SPEC.observation), np.uint8)
    segment.gather(agents, steps, out)
    for row, agent, step in zip(out, agents, steps, strict=True):
        np.testing.assert_array_equal(row, slow_stack(histories[agent], int(step), 4))


@pytest.mark.parametrize("steps", [0, 1, 11, 12, 13, 22, 23, 150])
def test_get_gives_what_was_written(steps):
    segment = Segment(LAYOUT)
    history = live(segment, 2, steps)
    replay = segment.agent(2)
    assert replay.end == steps and replay.oldest == max(0, steps - 12) and len(replay) == min(steps, 12)
    for first in range(replay.oldest, replay.end):
        for length in range(replay.end - first + 1):
            for name in ("action", "reward", "flags", "depth"):
                wanted = np.array([history[t][name] for t in range(first, first + length)])
                got = replay.get(name, first, length)
                assert len(got) == length
                np.testing.assert_array_equal(got, wanted.reshape(got.shape))
            frames = replay.get("frame", first, length + 1)  # up to the newest observation
            np.testing.assert_array_equal(frames, [history[t]["frame"] for t in range(first, first + length + 1)])
    assert not segment.arrays["flags"][:2].any()  # the other agents' rings


def test_get_gives_a_copy():
    replay = make_replay(VECTOR, episodes("----"), rewards=[1, 2, 3, 4])
    replay.get("reward", 0, 4)[:] = 9
    assert replay.get("reward", 0, 4).tolist() == [1, 2, 3, 4]


def test_get_at_absolute_steps_of_a_long_run():
    segment = Segment(LAYOUT)
    end = 3 * 10**9 + 7
    for step in range(end - 30, end + 1):
        write(segment, 0, step, 0, 0, reward=step - end)
    segment.end[0] = end
    assert segment.agent(0).get("reward", end - 12, 12).tolist() == list(range(-12, 0))


def test_a_sampled_sequence_stays_whole_while_its_rollout_waits():
    """The ring's slack: rows and stacks sampled at `end` are read until `slots` rollouts more have been waited for."""
    for slots in (1, 3):
        segment = Segment(LAYOUT._replace(slots=slots))
        sampled, limit = 40, 40 + (slots + 2) * SPEC.t_max
        oldest = np.arange(sampled - 12, sampled)
        seen = {}

        def remember(step, seen=seen, segment=segment, oldest=oldest, sampled=sampled, limit=limit):
            if sampled <= step <= limit:
                seen[step] = segment.agent(0).observations(oldest)

        live(segment, 0, limit, each=remember)
        for observations in seen.values():
            np.testing.assert_array_equal(observations, seen[sampled])


def test_discounts_are_zero_at_terminations_only():
    replay = make_replay(VECTOR, episodes("-T -t --"))
    assert replay.discounts(0, 8, 0.5).tolist() == [0.5, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert replay.discounts(0, 8, 0.99).dtype == np.float32


def test_sequence_length():
    replay = make_replay(VECTOR, episodes("-T --t ----"))  # rows: 0 1T 2R | 3 4 5t 6R | 7 8 9 10
    lengths = [replay.sequence_length(first, 4) for first in range(11)]
    assert lengths == [4, 4, 4, 3, 2, 1, 4, 4, 3, 2, 1]
    assert replay.sequence_length(0, 20) == 6
    assert replay.sequence_length(7, 20) == 4


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


def test_paper_sized_ring_stores_each_frame_once():
    spec = Spec((1, 84, 84), 4, "uint8", 6)
    layout = Layout(spec, agents=1, groups=1, replay_size=2000, extra={}, slots=1, mailboxes={})
    assert 2000 * 84 * 84 < layout.nbytes() < 1.05 * 2000 * 84 * 84


def test_another_process_shares_the_memory():
    segment = Segment(LAYOUT)
    history = live(segment, 1, 30)
    code = """if True:
        import pickle, sys
        sys.path[:], layout, fd = pickle.load(sys.stdin.buffer)
        from gunreal.experience.replay import Segment
        segment = Segment(pickle.loads(layout), fd)
        replay = segment.agent(1)
        segment.arrays["value"][1, 3] = replay.get("reward", replay.oldest, 1)[0]
    """
    given = pickle.dumps((sys.path, pickle.dumps(LAYOUT), segment.fd))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=given, pass_fds=(segment.fd,), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert segment.arrays["value"][1, 3] == history[30 - 12]["reward"]


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
    replay = make_replay(spec, flags, rewards=[0.5, -3, 1, 0, 2, 0], actions=[1, 2, 0, 1, 2, 1])
    segment = replay._segment
    segment.arrays["state"][0, :7] = np.arange(14).reshape(7, 2)
    past = segment.past(np.array([0, 0]), np.array([[0, 1, 2], [3, 4, 5]]))
    np.testing.assert_array_equal(past.state, [[0, 1], [6, 7]])
    np.testing.assert_array_equal(past.last_action, [[-1, 1, 2], [0, -1, 2]])
    np.testing.assert_array_equal(past.last_reward, [[0, 0.5, -1], [1, 0, 1]])
    assert past.last_action.dtype == np.int32 and past.last_reward.dtype == np.float32
    newest = segment.past(np.array([0]), np.array([[6]]))
    assert newest.last_action[0, 0] == 1 and newest.last_reward[0, 0] == 0
    assert make_replay(VECTOR, flags)._segment.past(np.array([0]), np.array([[0]])) is None


def test_a_recurrent_ring_has_room_for_the_row_before_and_the_state_ahead():
    layout = Layout(VECTOR._replace(state=2), 1, 1, 100, {}, 1, {})
    assert layout.ring == Layout(VECTOR, 1, 1, 100, {}, 1, {}).ring + 2
    assert layout.arrays()["state"] == ((1, layout.ring, 2), np.float32)
    assert "state" not in Layout(VECTOR, 1, 1, 100, {}, 1, {}).arrays()
