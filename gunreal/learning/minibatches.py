"""Division of batches into minibatches of whole rollouts, for several epochs of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.parts import present, rows


def minibatches(
    batch: Mapping[str, Any],
    lengths: Mapping[str, int],
    epochs: int,
    parts: int,
    rng: np.random.Generator,
    with_tasks: Sequence[bool],
) -> Iterator[dict[str, Any]]:
    """Iterates over a batch several times, each time in a new order.

    The tasks learn from their sequences in the first epoch only. They have a replay to draw others from, and would cost
    several times as much as the rollouts.

    Args:
      batch: the batch of `Network.loss`, with B rollouts and their sequences for the tasks.
      lengths: number of rows of each part's sequences, by name: "base", then the tasks.
      epochs: number of passes over the batch.
      parts: number of minibatches per epoch, limited to the number of rollouts.
      rng: random generator that shuffles the rollouts.
      with_tasks: whether the tasks take part in each of the first epoch's minibatches, at least `parts` entries.

    Yields:
      Batches of about B / `parts` rollouts.
    """
    count = len(batch["base"]["mask"])
    for epoch in range(epochs):
        for place, taken in enumerate(np.array_split(rng.permutation(count), min(parts, count))):
            names = list(present(lengths, batch)) if epoch == 0 and with_tasks[place] else ["base"]
            yield take(batch, lengths, names, taken)


def take(
    batch: Mapping[str, Any], lengths: Mapping[str, int], names: Sequence[str], taken: np.ndarray
) -> dict[str, Any]:
    """Selects the rollouts `taken` (int `[n]`) of a batch, with the parts that are named and those without rows."""
    kept = [*names, *(name for name in ("acted", "old") if name in batch)]
    smaller: dict[str, Any] = {name: {key: array[taken] for key, array in batch[name].items()} for name in kept}
    if "past" in batch:
        pasts = {name: past for name, past in batch["past"].items() if name in names}
        smaller["past"] = {name: Past(*(array[taken] for array in past)) for name, past in pasts.items()}
    chosen = [part[taken] for name, part in rows(batch, lengths).items() if name in names]
    smaller["observations"] = np.concatenate([part.reshape(-1, *part.shape[2:]) for part in chosen])
    return smaller
