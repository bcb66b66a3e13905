"""The helpers for batch forms do what those for single replays do."""

from __future__ import annotations

import numpy as np
import pytest
from rings import VECTOR, episodes, make_replay, make_segment

from gunreal.experience import returns
from gunreal.tasks.batch_contract import _replays
from gunreal.tasks.batched import choose, clip_rewards, n_step_returns, pad_batch, steps_until, uniform_sequences

FLAGS = episodes("--T -t ---- ---")


def replays(flags=FLAGS, count=3, **options):
    return _replays(make_segment(VECTOR, flags, **options), count)


def test_steps_before_the_replay_are_not_in_its_window():
    replay = replays(actions=np.arange(len(FLAGS)) % 3, replay_size=6)
    steps = np.arange(len(FLAGS) - 6, len(FLAGS))
    np.testing.assert_array_equal(replay.steps, steps)
    np.testing.assert_array_equal(replay.window("action"), np.tile(steps % 3, (3, 1)))
    assert int(replay.oldest) == steps[0]


def test_steps_of_each_agent():
    replay, single = replays(rewards=np.arange(len(FLAGS))), make_replay(VECTOR, FLAGS)
    first = np.array([0, 2, 5], np.int32)
    np.testing.assert_array_equal(replay.get("reward", first, 2), first[:, None] + np.arange(2))
    expected = [single.discounts(int(step), 3, 0.5) for step in first]
    np.testing.assert_array_equal(replay.discounts(first, 3, 0.5), expected)


def test_a_sequence_ends_with_a_truncated_or_the_newest_step():
    single, first = make_replay(VECTOR, FLAGS), np.arange(len(FLAGS), dtype=np.int32)
    expected = [single.sequence_length(int(step), 4) for step in first]
    found = replays(count=len(first)).sequence_length(first, 4)
    np.testing.assert_array_equal(found, expected)
    assert len(set(expected)) > 2


def test_steps_until_the_first():
    ends = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 1]], bool)
    np.testing.assert_array_equal(steps_until(ends), [3, 1, 3])


def test_every_choice_has_the_same_share():
    wanted = np.array([[0, 1, 1, 0, 1]] * 300 + [[0] * 5], bool)
    draw = np.append(np.arange(300) / 300, 0.5).astype(np.float32)
    index, found = (np.asarray(x) for x in choose(wanted, draw))
    np.testing.assert_array_equal(np.bincount(index[:-1]), [0, 100, 100, 0, 100])
    assert found[:-1].all() and not found[-1]


def test_the_largest_draw_is_no_choice_beyond_the_last():
    index, _ = choose(np.ones((1, 2000), bool), np.array([np.nextafter(np.float32(1), np.float32(0))]))
    assert index[0] == 1999


def test_there_is_no_sequence_in_a_short_replay():
    draws = np.zeros((3, 4), np.float32)
    assert not np.any(uniform_sequences(replays(FLAGS[:3]), draws).length)
    assert np.all(uniform_sequences(replays(FLAGS[:4]), draws).length)


def test_rows_after_the_end_are_zero():
    rows = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)
    np.testing.assert_array_equal(pad_batch(rows, np.array([1, 3])), [[[1, 2], [0, 0], [0, 0]], rows[1]])


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_rewards_are_clipped_as_in_numpy(clip):
    rewards = np.array([[-2, -0.5, 0, 0.25, 3]], np.float32)
    np.testing.assert_array_equal(clip_rewards(rewards, clip), returns.clip_rewards(rewards, clip))


@pytest.mark.parametrize("shape", [(), (2, 2)])
def test_returns_of_sequences_of_several_lengths(shape):
    rng, lengths = np.random.default_rng(0), np.array([1, 3, 4])
    rewards, bootstraps = (rng.normal(size=(3, *part, *shape)).astype(np.float32) for part in ((4,), ()))
    discounts = rng.choice([0, 0.9], size=(3, 4)).astype(np.float32)
    found = np.asarray(n_step_returns(rewards, discounts, bootstraps, lengths))
    for place, length in enumerate(lengths):
        own = returns.n_step_returns(rewards[place, :length], discounts[place, :length], bootstraps[place])
        np.testing.assert_allclose(found[place, :length], own, rtol=1e-5, atol=1e-6)
        assert not found[place, length:].any()
