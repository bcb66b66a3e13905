"""Minibatches: every rollout once an epoch, with the sequences that came with it."""

from __future__ import annotations

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.minibatches import minibatches, take


def make_batch(count):
    """Every row says which rollout it is of."""
    rows = np.arange(count)[:, None]
    base, fit = (np.tile(rows, (1, length)) for length in (4, 3))
    return {
        "base": {"mask": base, "observations": base, "past": Past(rows, base, base, base)},
        "acted": {"version": base},
        "fit": {"mask": fit, "observations": fit, "target": rows[:, 0]},
    }


def divided(count, epochs, parts, with_tasks):
    return list(minibatches(make_batch(count), epochs, parts, np.random.default_rng(0), with_tasks))


def test_a_part_has_the_rows_of_its_rollouts():
    part = take(make_batch(5), np.array([3, 1]))
    assert part["base"]["observations"].tolist() == [[3] * 4, [1] * 4] == part["acted"]["version"].tolist()
    assert part["fit"]["observations"].tolist() == [[3] * 3, [1] * 3] and part["fit"]["target"].tolist() == [3, 1]
    assert part["base"]["past"].state.tolist() == [[3], [1]] and part["base"]["past"].last_action.shape == (2, 4)


def test_every_rollout_once_an_epoch_in_a_new_order():
    parts = divided(7, 3, 2, [True] * 2)
    rollouts = [part["base"]["mask"][:, 0].tolist() for part in parts]
    assert [len(taken) for taken in rollouts] == [4, 3] * 3
    epochs = [one + two for one, two in zip(rollouts[::2], rollouts[1::2], strict=True)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_tasks_learn_in_the_first_epoch_only():
    parts = divided(4, 2, 2, [True] * 2)
    assert [list(part) for part in parts] == [["base", "acted", "fit"]] * 2 + [["base", "acted"]] * 2
    assert all((part["base"]["observations"] == part["base"]["mask"]).all() for part in parts)


def test_no_more_parts_than_rollouts():
    assert [len(part["base"]["mask"]) for part in divided(2, 1, 5, [True] * 5)] == [1, 1]


def test_tasks_may_leave_out_minibatches_of_the_first_epoch():
    assert ["fit" in part for part in divided(4, 2, 2, [False, True])] == [False, True, False, False]
