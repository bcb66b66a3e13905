"""Minibatches: every rollout once an epoch, with the sequences that came with it."""

from __future__ import annotations

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.minibatches import minibatches, take


def make_batch(count, draws=1):
    """Every row says which rollout it is of, and "draw" which of its sequences."""
    rows = np.arange(count)[:, None]
    base, fit = (np.tile(rows, (1, length)) for length in (4, 3))
    numbers = {"draw": np.tile(np.arange(draws), count)}
    return {
        "base": {"mask": base, "observations": base, "past": Past(rows, base, base, base)},
        "acted": {"version": base},
        "fit": {name: np.repeat(x, draws, 0) for name, x in (("mask", fit), ("observations", fit))} | numbers,
    }


def divided(count, epochs, parts, with_tasks, updates=1, draws=1):
    batch = make_batch(count, draws)
    return list(minibatches(batch, epochs, parts, np.random.default_rng(0), with_tasks, {"fit": updates}))


def test_a_part_has_the_rows_of_its_rollouts():
    part = take(make_batch(5), np.array([3, 1]))
    assert part["base"]["observations"].tolist() == [[3] * 4, [1] * 4] == part["acted"]["version"].tolist()
    assert part["fit"]["observations"].tolist() == [[3] * 3, [1] * 3]
    assert part["base"]["past"].state.tolist() == [[3], [1]] and part["base"]["past"].last_action.shape == (2, 4)


def test_every_rollout_once_an_epoch_in_a_new_order():
    parts = divided(7, 3, 2, [True] * 2)
    rollouts = [part["base"]["mask"][:, 0].tolist() for part in parts]
    assert [len(taken) for taken in rollouts] == [4, 3] * 3
    epochs = [one + two for one, two in zip(rollouts[::2], rollouts[1::2], strict=True)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_task_learns_from_other_sequences_in_each_of_its_epochs():
    parts = divided(5, 3, 2, [True] * 2, updates=2, draws=6)
    for number, part in enumerate(parts[:4]):
        rollouts = part["base"]["mask"][:, 0]
        assert part["fit"]["mask"][:, 0].tolist() == np.repeat(rollouts, 3).tolist()
        assert part["fit"]["draw"].reshape(-1, 3).tolist() == [[[0, 1, 2], [3, 4, 5]][number // 2]] * len(rollouts)
    assert not any("fit" in part for part in parts[4:])
