"""Division of batches into minibatches of whole rollouts, for several epochs of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gunreal.experience.replay import Past


def minibatches(
    batch: Mapping[str, Any], epochs: int, parts: int, rng: np.random.Generator, with_tasks: Sequence[bool]
) -> Iterator[dict[str, Any]]:
    """Iterates over a batch several times, each time in a new order.

    The tasks learn from their sequences in the first epoch only. They have a replay to draw others from, and would cost
    several times as much as the rollouts.

    Args:
      batch: the batch of `Network.loss`, with B rollouts and their sequences for the tasks.
      epochs: number of passes over the batch.
      parts: number of minibatches per epoch, limited to the number of rollouts.
      rng: random generator that shuffles the rollouts.
      with_tasks: whether the tasks take part in each of the first epoch's minibatches, at least `parts` entries.

    Yields:
      Batches of about B / `parts` rollouts.
    """
    count, alone = len(batch["base"]["mask"]), without_tasks(batch)
    for epoch in range(epochs):
        for place, taken in enumerate(np.array_split(rng.permutation(count), min(parts, count))):
            yield take(batch if epoch == 0 and with_tasks[place] else alone, taken)


def without_tasks(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch without the parts of the tasks."""
    return {name: batch[name] for name in ("base", "acted", "old") if name in batch}


def take(batch: Any, taken: np.ndarray) -> Any:
    """Copies the rollouts `taken` (int `[n]`) of a batch, and what came with them."""
    if isinstance(batch, Mapping):
        return {name: take(part, taken) for name, part in batch.items()}
    return Past(*(array[taken] for array in batch)) if isinstance(batch, Past) else batch[taken]
