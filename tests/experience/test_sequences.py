"""Drawing sequences in NumPy and in JAX."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from rings import VECTOR, episodes, make_segment

from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED, steps_until
from gunreal.experience.sequences import (
    DRAWS,
    choose,
    pad,
    prioritized_sequences,
    sequence_priorities,
    uniform_sequences,
)


@pytest.fixture(params=["numpy", "jax.numpy"])
def xp(request):
    pytest.importorskip(request.param)
    return importlib.import_module(request.param)


def test_steps_until_the_first(xp):
    ends = xp.asarray([[0, 0, 0], [1, 0, 1], [0, 0, 1]], dtype=bool)
    assert steps_until(ends).tolist() == [3, 1, 3]


def test_every_choice_has_the_same_share(xp):
    wanted = xp.asarray([[0, 1, 1, 0, 1]] * 300 + [[0] * 5], dtype=bool)
    draw = xp.asarray(np.append(np.arange(300) / 300, 0.5).astype(np.float32))
    index, found = (np.asarray(part) for part in choose(wanted, draw))
    assert np.bincount(index[:-1]).tolist() == [0, 100, 100, 0, 100]
    assert found[:-1].all() and not found[-1] and index[-1] == 4


def test_the_largest_draw_is_no_choice_beyond_the_last(xp):
    index, _ = choose(xp.ones((1, 2000), dtype=bool), xp.asarray([np.nextafter(np.float32(1), np.float32(0))]))
    assert index[0] == 1999


def test_rows_after_the_end_are_zero(xp):
    rows = xp.reshape(xp.arange(1, 13), (2, 3, 2))
    assert pad(rows, xp.asarray([1, 3])).tolist() == [[[1, 2], [0, 0], [0, 0]], rows[1].tolist()]


def test_there_is_no_sequence_in_a_short_replay():
    draws = np.random.default_rng(0).random((50, DRAWS), np.float32)
    for steps, found in ((1, False), (3, False), (4, True), (200, True)):
        replay = make_segment(VECTOR, episodes("-" * steps)).replay(np.zeros(50, int))
        assert (uniform_sequences(replay, draws).length > 0).tolist() == [found] * 50


def test_steps_that_only_reset_are_no_choice():
    """Also where there is no other step."""
    draws = np.random.default_rng(0).random((50, DRAWS), np.float32)
    replay = make_segment(VECTOR._replace(t_max=1), episodes("T " * 20)[1:], replay_size=1).replay(np.zeros(50, int))
    assert replay.get("flags", replay.oldest, 1)[0, 0] & RESET
    assert not uniform_sequences(replay, draws).length.any()


def slow_priorities(error, flags, t_max):
    """By the definition: a sequence ends with a truncated step. The last state of an episode does not count."""
    result = np.zeros(error.shape)
    for agent, first in np.ndindex(error.shape):
        learned = []
        for t in range(first, min(first + t_max, error.shape[1])):
            if not flags[agent, t] & RESET:
                learned.append(error[agent, t])
            if flags[agent, t] & TRUNCATED:
                break
        result[agent, first] = 0.9 * max(learned) + 0.1 * np.mean(learned) if learned else 0
    return result


@pytest.mark.parametrize("t_max", [1, 4, 30])
def test_the_priority_of_a_sequence_is_that_of_its_steps(xp, t_max):
    rng = np.random.default_rng(0)
    error = rng.exponential(size=(5, 20)).astype(np.float32)
    flags = rng.choice([0, TERMINATED, TRUNCATED, RESET], p=(0.7, 0.1, 0.1, 0.1), size=error.shape).astype(np.uint8)
    found = sequence_priorities(xp.asarray(error), xp.asarray(flags), t_max)
    np.testing.assert_allclose(found, slow_priorities(error, flags, t_max), rtol=1e-5)


def prioritized(priority, count, exponent):
    """Draws from the replays of `count` agents with these priorities of their steps."""
    segment = make_segment(VECTOR._replace(t_max=1, priorities=("vr",)), episodes("-" * len(priority)), replay_size=99)
    segment.arrays["vr.priority"][0, : len(priority)] = priority
    draws = np.tile((np.arange(count)[:, None] + 0.5) / count, DRAWS).astype(np.float32)
    return prioritized_sequences(segment.replay(np.zeros(count, int)), draws, "vr", exponent)


def test_draws_and_weights_are_those_of_the_paper():
    """Equation 1 with proportional priorities, and the weights of section 3.4. A new step counts as the largest."""
    first, length, weight = prioritized([4.0, 0.0, 1.0, 2.0], 20_000, 0.5)
    chances = np.sqrt(np.array([1, 1, 0.25, 0.5]) + 1e-3)
    chances /= chances.sum()
    assert (length == 1).all()
    np.testing.assert_allclose(np.bincount(first) / 20_000, chances, atol=1e-4)
    np.testing.assert_allclose(weight, 1 / (4 * chances[first]), rtol=1e-4)


@pytest.mark.parametrize("priority", [[0.0] * 5, [1e-30] * 5, [0, 1, 2, 3, 4]])
def test_without_known_differences_or_an_exponent_all_are_drawn_alike(priority):
    found = prioritized(priority, 5000, 0.0 if max(priority) > 1 else 1.0)
    assert np.bincount(found.first).tolist() == [1000] * 5 and np.allclose(found.weight, 1)


@pytest.mark.parametrize("off", [-0.5, 0.5])
def test_rounding_of_the_sums_draws_no_step_without_a_share(monkeypatch, off):
    """The sum of a reset is too large or too small here, and the draw lies between that and the sum before."""
    segment = make_segment(VECTOR._replace(t_max=1, priorities=("vr",)), episodes("--T --T"), replay_size=7)
    segment.arrays["vr.priority"][:] = 0
    replay = segment.replay(np.zeros(1, int))
    reset = 1 + np.flatnonzero(replay.window("flags")[0, 1:-1] & RESET)[0]
    exact, cumulative_sum = np.cumsum(replay.window("flags")[0] & RESET == 0), np.cumulative_sum

    def rounded(x, **options):
        sums = cumulative_sum(x, **options)
        return sums + off * (np.arange(7) == reset) if x.dtype == np.float32 else sums

    monkeypatch.setattr(np, "cumulative_sum", rounded)
    draws = np.full((1, DRAWS), (exact[reset] + off / 2) / exact[-1], np.float32)
    assert prioritized_sequences(replay, draws, "vr", 0.0).first[0] - replay.steps[0] != reset
