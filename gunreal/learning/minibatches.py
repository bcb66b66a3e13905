"""Division of batches into minibatches of whole rollouts, for several epochs of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gunreal.experience.replay import Past


def minibatches(
    batch: Mapping[str, Any], lengths: Sequence[int], epochs: int, parts: int, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Iterates over a batch several times, each time in a new order.

    Args:
      batch: the batch of `Network.loss`, with B rollouts and their sequences for the tasks.
      lengths: number of rows of a rollout, then of a sequence of each task.
      epochs: number of passes over the batch.
      parts: number of minibatches per epoch, limited to the number of rollouts.
      rng: random generator that shuffles the rollouts.

    Yields:
      Batches of about B / `parts` rollouts.
    """
    count = len(batch["base"]["mask"])
    for _ in range(epochs):
        for taken in np.array_split(rng.permutation(count), min(parts, count)):
            yield take(batch, lengths, taken)


def take(batch: Mapping[str, Any], lengths: Sequence[int], taken: np.ndarray) -> dict[str, Any]:
    """Selects the rollouts `taken` (int `[n]`) of a batch, with their sequences."""
    count = len(batch["base"]["mask"])
    smaller: dict[str, Any] = {
        part: {name: array[taken] for name, array in arrays.items()}
        for part, arrays in batch.items()
        if part not in ("observations", "past")
    }
    if "past" in batch:
        smaller["past"] = {part: Past(*(array[taken] for array in past)) for part, past in batch["past"].items()}
    ends = np.cumsum([length * count for length in lengths])[:-1]
    parts = np.split(batch["observations"], ends)
    shaped = [rows.reshape(count, length, *rows.shape[1:])[taken] for rows, length in zip(parts, lengths, strict=True)]
    smaller["observations"] = np.concatenate([rows.reshape(-1, *rows.shape[2:]) for rows in shaped])
    return smaller
