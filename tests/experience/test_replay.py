import numpy as np
import pytest
from rings import LAYOUT, SPEC, VECTOR, episodes, live, make_replay, write
from wording import MEAN

from gunreal.experience.replay import ALIGN, FIRST, blank_past, concatenate_pasts, empty_observations, stack_index
from gunreal.experience.segment import Segment


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_room_for_observations(dtype):
    rooms = [empty_observations(SPEC._replace(dtype=dtype), count) for count in (1, 7, 500)]
    assert [room.shape for room in rooms] == [(count, 8, 3, 5) for count in (1, 7, 500)]
    assert all(room.dtype == dtype and room.flags.carray and room.ctypes.data % ALIGN == 0 for room in rooms)


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


def test_a_misspelt_field_is_explained():
    with pytest.raises(KeyError, match=f"the replay has no 'acton'; {MEAN} action"):
        make_replay(VECTOR, episodes("--T -")).get("acton", 0, 2)


def test_steps_that_the_ring_does_not_hold_are_refused():
    """They would be those of other experience. Row `end` has an observation, but no action yet."""
    segment = Segment(LAYOUT)
    live(segment, 0, 3 * LAYOUT.ring)
    replay, held = segment.agent(0), LAYOUT.ring - 1
    end = replay.end
    for name, last in (("frame", end), ("flags", end), ("action", end - 1), ("reward", end - 1)):
        assert len(replay.get(name, end - held, last - (end - held) + 1)) in (held, held + 1)
        for first, length in ((end - held - 1, 2), (last, 2), (-1, 1), (end, -1)):
            with pytest.raises(
                IndexError, match=f"of '{name}' are not in the ring, which holds {end - held} to {last}"
            ):
                replay.get(name, first, length)


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
        seen = []
        for step in range(limit + 1):
            write(segment, 0, step, step, 0 if step else FIRST)  # one long episode, whose stacks are always full
            segment.end[0] = step
            if step >= sampled:
                seen.append(segment.agent(0).observations(oldest))
        for observations in seen:
            np.testing.assert_array_equal(observations, seen[0])


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


def test_pasts_of_different_sizes_become_one_batch():
    pasts = [blank_past(VECTOR._replace(state=2), count) for count in (2, 3)]
    assert [len(array) for array in concatenate_pasts([*pasts, None])] == [5, 5, 5]
    assert concatenate_pasts([None, None]) is None
