import numpy as np
import pytest
from rings import LAYOUT, SPEC, VECTOR, episodes, live, make_segment, rows, write
from wording import MEAN

from gunreal.experience.replay import FIRST, blank_past, concatenate_pasts
from gunreal.experience.segment import Segment


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
        replay = segment.replay(np.array([1]))
        steps = np.arange(replay.oldest, replay.end + 1)
        (observations,) = replay.observations(steps[None])
        assert observations.shape == (len(steps), 8, 3, 5) and observations.dtype == np.uint8
        for observed, at in zip(observations, steps, strict=True):
            np.testing.assert_array_equal(observed, slow_stack(histories, int(at), 4))

    # `live` gives its history at the end, so it is lived twice: the second time compared after every step.
    histories[:] = live(segment, 1, 150)
    live(segment, 1, 150, each=compare)


def test_a_misspelt_field_is_explained():
    with pytest.raises(KeyError, match=f"the replay has no 'acton'; {MEAN} action"):
        rows(make_segment(VECTOR, episodes("--T -")), "acton", 0, 2)


def test_a_first_step_that_the_replay_does_not_hold_is_refused():
    """It would be other experience. Step `end` has an observation, but no action yet."""
    segment = Segment(LAYOUT)
    live(segment, 0, 3 * LAYOUT.ring)
    replay = segment.replay(np.zeros(2, int))
    end, oldest = replay.end, replay.end - LAYOUT.replay_size
    for name, last in (("frame", end), ("flags", end), ("action", end - 1), ("reward", end - 1)):
        replay.get(name, np.array([oldest, last]), 2)
        for first in (oldest - 1, last + 1, -1):
            line = f"step {first} of '{name}' is not in the replay, which holds {oldest} to {last}"
            with pytest.raises(IndexError, match=line):
                replay.get(name, np.array([oldest, first]), 1)


def test_steps_after_the_newest_one_repeat_it():
    segment = make_segment(VECTOR, episodes("--T -"), rewards=[1, 2, 3, 4, 5])
    assert rows(segment, "reward", 3, 5).tolist() == [4, 5, 5, 5, 5]
    assert rows(segment, "flags", 4, 3).tolist() == [FIRST, 0, 0]


def test_stacks_of_long_episodes_whose_age_is_saturated():
    frames = np.arange(601).reshape(-1, 1)
    replay = make_segment(VECTOR._replace(stack=4), episodes("-" * 600), frames=frames).replay(np.zeros(1, int))
    assert replay.get("age", 590, 3).tolist() == [[255] * 3]
    assert replay.observations(np.array([[600]])).tolist() == [[[597, 598, 599, 600]]]


@pytest.mark.parametrize("steps", [0, 1, 11, 12, 13, 22, 23, 150])
def test_get_gives_what_was_written(steps):
    segment = Segment(LAYOUT)
    history = live(segment, 2, steps)
    replay = segment.replay(np.array([2]))
    assert replay.end == steps and replay.oldest == max(0, steps - 12)
    for first in range(replay.oldest, replay.end):
        for length in range(1, replay.end - first + 1):
            for name in ("action", "reward", "flags", "depth"):
                wanted = np.array([history[t][name] for t in range(first, first + length)])
                (got,) = replay.get(name, first, length)
                assert len(got) == length
                np.testing.assert_array_equal(got, wanted.reshape(got.shape))
            (frames,) = replay.get("frame", first, length + 1)  # up to the newest observation
            np.testing.assert_array_equal(frames, [history[t]["frame"] for t in range(first, first + length + 1)])
    assert not segment.arrays["flags"][:2].any()  # the other agents' rings


def test_get_gives_a_copy():
    segment = make_segment(VECTOR, episodes("----"), rewards=[1, 2, 3, 4])
    for window in (rows(segment, "reward", 0, 4), segment.replay(np.zeros(1, int)).window("reward")):
        window[:] = 9
    assert rows(segment, "reward", 0, 4).tolist() == [1, 2, 3, 4]


def test_get_at_absolute_steps_of_a_long_run():
    segment = Segment(LAYOUT)
    end = 3 * 10**9 + 7
    for step in range(end - 30, end + 1):
        write(segment, 0, step, 0, 0, reward=step - end)
    segment.end[0] = end
    assert rows(segment, "reward", end - 12, 12).tolist() == list(range(-12, 0))


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
                seen.append(segment.replay(np.zeros(1, int)).observations(oldest[None]))
        for observations in seen:
            np.testing.assert_array_equal(observations, seen[0])


def test_the_window_has_the_newest_steps_of_each_agent():
    segment = Segment(LAYOUT)
    histories = [live(segment, agent, 40, seed=agent) for agent in range(2)]
    replay = segment.replay(np.array([1, 0]))
    assert replay.steps.tolist() == list(range(28, 40))
    wanted = [[history[step]["reward"] for step in range(28, 40)] for history in (histories[1], histories[0])]
    np.testing.assert_array_equal(replay.window("reward"), wanted)


def test_replays_as_they_were():
    segment = Segment(LAYOUT)
    history = live(segment, 0, 40)
    replay = segment.replay(np.zeros(1, int), 35)
    assert (replay.oldest, replay.end) == (23, 35)
    np.testing.assert_array_equal(replay.get("reward", 33, 4), [[history[step]["reward"] for step in (33, 34, 34, 34)]])


def test_discounts_are_zero_at_terminations_only():
    replay = make_segment(VECTOR, episodes("-T -t --")).replay(np.zeros(1, int))
    assert replay.discounts(0, 8, 0.5).tolist() == [[0.5, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]
    assert replay.discounts(0, 8, 0.99).dtype == np.float32


def test_a_sequence_ends_with_a_truncated_or_the_newest_step():
    segment = make_segment(VECTOR, episodes("-T --t ----"))  # rows: 0 1T 2R | 3 4 5t 6R | 7 8 9 10
    replay = segment.replay(np.zeros(11, int))
    assert replay.sequence_length(np.arange(11), 4).tolist() == [4, 4, 4, 3, 2, 1, 4, 4, 3, 2, 1]
    assert replay.sequence_length(np.full(11, 0), 20).tolist() == [6] * 11
    assert replay.sequence_length(np.full(11, 7), 20).tolist() == [4] * 11


def test_pasts_of_different_sizes_become_one_batch():
    pasts = [blank_past(VECTOR._replace(state=2), count) for count in (2, 3)]
    assert [len(array) for array in concatenate_pasts([*pasts, None])] == [5, 5, 5, 5]
    assert concatenate_pasts([None, None]) is None
