"""Sequences of steps in the replays of several agents, and how they are drawn, in NumPy or JAX.

Shapes do not depend on data, so that JAX can compile all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gunreal.experience.replay import RESET, TRUNCATED, Read, Replay

DRAWS = 4  # random numbers per sequence
LEAST_PRIORITY = 1e-30  # of a step that has one; 0 means that nothing has been learned from it
_MAXIMUM = 0.9  # share of the largest priority of a step in that of a sequence; the rest is the mean
_ANY = 1e-3  # added to priorities, in units of the largest one of a step, so that all sequences are drawn at times


class Sequences(NamedTuple):
    """One sequence of successive steps in each of N replays.

    Attributes:
      first: absolute number of the first step, int `[N]`. Any number where `length` is 0.
      length: number of steps to learn from, int `[N]`. 0 if the replay has no suitable sequence yet. Rows from `length`
        on are padding (mask 0). The bootstrap state is the observation at `first + length`.
    """

    first: Any
    length: Any


class WeightedSequences(NamedTuple):
    """Sequences with importance weights, which the loss of a task finds as `batch["weight"]`.

    Attributes:
      first: as in `Sequences`.
      length: as in `Sequences`.
      weight: finite numbers of 0 or more, float32 `[N]`. They become 0 where the length is 0.
    """

    first: Any
    length: Any
    weight: Any


Drawn = Sequences | WeightedSequences  # what a task may draw


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


def prioritized_sequences(replay: Replay, draws: Any, task: str, exponent: float = 0.6) -> WeightedSequences:
    """Draws sequences of up to `t_max` steps with probabilities P by priority (Schaul et al. 2016, eq. 1).

    The priority of a sequence is 90 % of the largest and 10 % of the mean of the priorities of its steps (Kapturowski
    et al. 2019, section 2.3). Steps that have none yet count as the one with the largest. As with `uniform_sequences`,
    a sequence never starts at a step that only resets, and there is none while there are fewer than `t_max` steps.

    Args:
      replay: the replays of N agents.
      draws: uniform random numbers in [0, 1), float32 `[N, DRAWS]`. The first column is used.
      task: name of the task that reports the priorities.
      exponent: exponent of the priorities, alpha. 0 draws uniformly.

    Returns:
      The sequences with the weights `1 / (n P)` for n possible first steps. The loss of the paper raises them to the
      power beta, and divides them by the largest one of the batch.
    """
    xp, flags, t_max = replay.xp, replay.window("flags"), replay.spec.t_max
    exists = (replay.steps >= replay.oldest)[None]
    priority = xp.where(exists, replay.window(f"{task}.priority"), 0.0)
    largest = xp.max(priority, axis=1, keepdims=True)
    relative = xp.where(priority > 0, priority / xp.where(largest > 0, largest, 1.0), 1.0)
    allowed = exists & (flags & RESET == 0)
    share = xp.where(allowed, (_ANY + sequence_priorities(relative, flags, t_max)) ** exponent, 0.0)
    # Parallel sums can differ by rounding where nothing is added. A step without a share must not be drawn for that.
    sums = xp.where(share > 0, xp.cumulative_sum(share, axis=1), 0.0)
    total = xp.max(sums, axis=1, keepdims=True)
    index = xp.argmax(sums > draws[:, :1] * (1 - 1e-6) * total, axis=1)  # below the total, also when rounded
    found = (total[:, 0] > 0) & (replay.end - replay.oldest >= t_max)
    first = xp.maximum(replay.end - replay.size + index, replay.oldest)
    length = xp.where(found, replay.sequence_length(first, t_max), 0)
    chance = xp.take_along_axis(share, index[:, None], axis=1)[:, 0] / xp.where(found, total[:, 0], 1.0)
    count = xp.astype(xp.sum(allowed, axis=1), xp.float32)
    return WeightedSequences(first, length, xp.where(found, 1 / xp.where(found, count * chance, 1.0), 0.0))


def sequence_priorities(priority: Any, flags: Any, t_max: int) -> Any:
    """The priority of the sequence that starts at each step, float32 `[N, W]`.

    Args:
      priority: priority of each step, float32 `[N, W]`. That of a RESET step does not count.
      flags: flags of each step, uint8 `[N, W]`.
      t_max: number of steps of a sequence. A truncated step or the last of the W steps ends it earlier.
    """
    xp = flags.__array_namespace__()
    learned = flags & RESET == 0
    known = xp.where(learned, priority, 0.0)
    # The largest, the sum, the number, and whether a sequence goes on behind, for spans of 1, 2, 4, 8 ... steps.
    span = known, known, xp.astype(learned, xp.float32), flags & TRUNCATED == 0
    found = (*(xp.zeros_like(part) for part in span[:3]), xp.ones_like(span[3]))
    covered, size = 0, 1
    while size <= t_max:
        if t_max & size:
            found, covered = _joined(found, span, covered), covered + size
        span, size = _joined(span, span, size), 2 * size
    most, total, count, _ = found
    return _MAXIMUM * most + (1 - _MAXIMUM) * total / xp.maximum(count, 1.0)


def _joined(one: tuple[Any, ...], two: tuple[Any, ...], ahead: int) -> tuple[Any, ...]:
    """The spans `one`, each followed by that of `two` which starts `ahead` steps later."""
    xp, (most, total, count, inside) = one[0].__array_namespace__(), one
    more = (xp.concat([x[:, ahead:], xp.zeros_like(x[:, :ahead])], axis=1) for x in two)
    most_2, total_2, count_2, inside_2 = (xp.where(inside, x, xp.zeros_like(x)) for x in more)
    return xp.maximum(most, most_2), total + total_2, count + count_2, inside_2


def steps_and_mask(read: Read, sequences: Drawn, rows: int) -> tuple[Any, Any]:
    """The steps of sequences in a batch, and which of them are learned from.

    Args:
      sequences: the sequences. The first step of one without steps must exist, too.
      rows: number of steps in the batch. Padding repeats the last step of a sequence.

    Returns:
      Absolute steps, int `[N, rows]`, and the mask, float32 `[N, rows]`. It is 0 for padding and for steps that only
      reset an environment.
    """
    first, length = (part[:, None] for part in sequences[:2])
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
