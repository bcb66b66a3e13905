"""Sequences of steps in the replays of several agents, and how they are drawn, in NumPy or JAX.

Shapes do not depend on data, so that JAX can compile all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gunreal.experience.replay import RESET, Read, Replay

DRAWS = 4  # random numbers per sequence


class Sequences(NamedTuple):
    """One sequence of successive steps in each of N replays.

    Attributes:
      first: absolute number of the first step, int `[N]`. Any number where `length` is 0.
      length: number of steps to learn from, int `[N]`. 0 if the replay has no suitable sequence yet. Rows from `length`
        on are padding (mask 0). The bootstrap state is the observation at `first + length`.
    """

    first: Any
    length: Any


def uniform_sequences(replay: Replay, draws: Any) -> Sequences:
    """Draws sequences of up to `t_max` steps. The first step is uniform over the complete steps of the replay.

    A sequence never starts at a step that only resets the environment. There is none while the replay has fewer than
    `t_max` steps.

    Args:
      replay: the replays of N agents.
      draws: uniform random numbers in [0, 1), float32 `[N, DRAWS]`. The first column is used.
    """
    complete = (replay.steps >= replay.oldest)[None]
    index, found = choose((replay.window("flags") & RESET == 0) & complete, draws[:, 0])
    first, t_max = replay.end - replay.size + index, replay.spec.t_max
    found = found & (replay.end - replay.oldest >= t_max)
    return Sequences(first, replay.xp.where(found, replay.sequence_length(first, t_max), 0))


def steps_and_mask(read: Read, sequences: Sequences, rows: int) -> tuple[Any, Any]:
    """The steps of sequences in a batch, and which of them are learned from.

    Args:
      read: access to the rows of the agents.
      sequences: the sequences. The first step of one without steps must exist, too.
      rows: number of steps in the batch. Padding repeats the last step of a sequence.

    Returns:
      Absolute steps, int `[N, rows]`, and the mask, float32 `[N, rows]`. It is 0 for padding and for steps that only
      reset an environment.
    """
    first, length = (part[:, None] for part in sequences)
    xp = length.__array_namespace__()
    row = xp.arange(rows)
    steps = first + xp.minimum(row, xp.maximum(length, 1) - 1)
    return steps, xp.astype((row < length) & (read("flags", steps) & RESET == 0), xp.float32)


def choose(wanted: Any, draw: Any) -> tuple[Any, Any]:
    """Chooses one of the True entries of each row, all with the same probability.

    Args:
      wanted: bool `[N, W]`.
      draw: uniform random numbers in [0, 1), float32 `[N]`.

    Returns:
      The chosen indices, int `[N]`, and whether there was a choice, bool `[N]`. An index is W - 1 if there was none.
    """
    xp = wanted.__array_namespace__()
    counts = xp.cumulative_sum(xp.astype(wanted, xp.int32), axis=1)
    count = counts[:, -1]
    place = xp.minimum(xp.astype(draw * xp.astype(count, xp.float32), xp.int32), count - 1)
    index = xp.sum(counts <= place[:, None], axis=1)
    return xp.where(count > 0, index, wanted.shape[1] - 1), count > 0


def pad(rows: Any, length: Any) -> Any:
    """Sets the rows of `rows` `[N, T, ...]` from `length` int `[N]` on to zero."""
    xp = rows.__array_namespace__()
    kept = xp.arange(rows.shape[1])[None] < length[:, None]
    return xp.where(xp.reshape(kept, (*kept.shape, *[1] * (rows.ndim - 2))), rows, xp.zeros_like(rows))
