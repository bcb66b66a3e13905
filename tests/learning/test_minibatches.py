"""Minibatches: every rollout once an epoch, with the sequences that came with it."""

from __future__ import annotations

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.minibatches import minibatches, take

LENGTHS = {"base": 4, "fit": 3}


def make_batch(count):
    """Every row says which rollout it is of."""
    rows = [np.repeat(np.arange(count), length) for length in LENGTHS.values()]
    return {
        "observations": np.concatenate(rows)[:, None],
        "base": {"mask": np.tile(np.arange(count)[:, None], (1, 4))},
        "fit": {"mask": np.tile(np.arange(count)[:, None], (1, 3)), "target": np.arange(count)},
        "past": {"base": Past(np.arange(count)[:, None], *(np.tile(np.arange(count)[:, None], (1, 4)),) * 2)},
    }


def test_a_part_has_the_rows_of_its_rollouts():
    part = take(make_batch(5), LENGTHS, ["base", "fit"], np.array([3, 1]))
    assert part["observations"][:, 0].tolist() == [3] * 4 + [1] * 4 + [3] * 3 + [1] * 3
    assert part["base"]["mask"][:, 0].tolist() == [3, 1] and part["fit"]["target"].tolist() == [3, 1]
    assert part["past"]["base"].state[:, 0].tolist() == [3, 1]
    assert part["past"]["base"].last_action.shape == (2, 4)


def test_every_rollout_once_an_epoch_in_a_new_order():
    parts = list(minibatches(make_batch(7), LENGTHS, 3, 2, np.random.default_rng(0), [True] * 2))
    rollouts = [part["base"]["mask"][:, 0].tolist() for part in parts]
    assert [len(taken) for taken in rollouts] == [4, 3] * 3
    epochs = [one + two for one, two in zip(rollouts[::2], rollouts[1::2], strict=True)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_tasks_learn_in_the_first_epoch_only():
    parts = list(minibatches(make_batch(4), LENGTHS, 2, 2, np.random.default_rng(0), [True] * 2))
    assert ["fit" in part for part in parts] == [True, True, False, False]
    assert [len(part["observations"]) for part in parts] == [14, 14, 8, 8]
    for part in parts[2:]:
        assert part["observations"][:, 0].tolist() == np.repeat(part["base"]["mask"][:, 0], 4).tolist()


def test_no_more_parts_than_rollouts():
    parts = list(minibatches(make_batch(2), LENGTHS, 1, 5, np.random.default_rng(0), [True] * 5))
    assert [len(part["base"]["mask"]) for part in parts] == [1, 1]


def test_tasks_may_leave_out_minibatches_of_the_first_epoch():
    parts = list(minibatches(make_batch(4), LENGTHS, 2, 2, np.random.default_rng(0), [False, True]))
    assert ["fit" in part for part in parts] == [False, True, False, False]
    assert [len(part["observations"]) for part in parts] == [8, 14, 8, 8]
