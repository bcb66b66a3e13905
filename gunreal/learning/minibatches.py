"""Division of batches into minibatches of whole rollouts, for several epochs of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gunreal.experience.replay import Past


def minibatches(
    batch: Mapping[str, Any],
    epochs: int,
    parts: int,
    rng: np.random.Generator,
    with_tasks: Sequence[bool],
    updates: Mapping[str, int],
) -> Iterator[dict[str, Any]]:
    """Iterates over a batch several times, each time in a new order.

    Most tasks learn in the first epoch only. They have a replay to draw other sequences from, and would cost several
    times as much as the rollouts.

    Args:
      batch: the batch of `Network.loss`, with B rollouts and their sequences for the tasks.
      epochs: number of passes over the batch.
      parts: number of minibatches per epoch, limited to the number of rollouts.
      rng: random generator that shuffles the rollouts.
      with_tasks: whether the tasks take part in each of an epoch's minibatches, at least `parts` entries.
      updates: number of epochs in which each task takes part, by name.

    Yields:
      Batches of about B / `parts` rollouts.
    """
    count = len(batch["base"]["mask"])
    for epoch in range(epochs):
        present = {name: number for name, number in updates.items() if epoch < number and name in batch}
        for place, rollouts in enumerate(np.array_split(rng.permutation(count), min(parts, count))):
            yield minibatch(batch, rollouts, epoch, present if with_tasks[place] else {})


def minibatch(batch: Mapping[str, Any], rollouts: Any, epoch: Any, updates: Mapping[str, int]) -> dict[str, Any]:
    """Some rollouts of a batch with the sequences of one epoch, in NumPy or JAX.

    Args:
      batch: the batch. The sequences of a rollout follow each other, in the order of the epochs.
      rollouts: places of the rollouts in the batch, int `[n]`.
      epoch: number of the epoch, from 0.
      updates: number of epochs in which a task takes part, by the names of those that do in this one.
    """
    count, found = len(batch["base"]["mask"]), take(without_tasks(batch), rollouts)
    for name, number in updates.items():
        draws = len(batch[name]["mask"]) // count
        each = draws // number
        found[name] = take(batch[name], (rollouts[:, None] * draws + epoch * each + np.arange(each)).reshape(-1))
    return found


def without_tasks(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch without the parts of the tasks."""
    return {name: batch[name] for name in ("base", "acted", "old") if name in batch}


def take(batch: Any, taken: Any) -> Any:
    """Copies the rows `taken` (int `[n]`) of all arrays of a batch."""
    if isinstance(batch, Mapping):
        return {name: take(part, taken) for name, part in batch.items()}
    return Past(*(array[taken] for array in batch)) if isinstance(batch, Past) else batch[taken]
