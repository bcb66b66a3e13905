"""Drawing sequences in NumPy and in JAX."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from rings import VECTOR, episodes, make_segment

from gunreal.experience.replay import RESET, steps_until
from gunreal.experience.sequences import DRAWS, choose, pad, uniform_sequences


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
