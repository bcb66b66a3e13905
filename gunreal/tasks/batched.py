"""Helpers for the batch form of a task: the replays of many agents, as tensors of static shapes.

All functions use `keras.ops` only, so that a device run can compile them. Import this module inside `sample_batch` and
`targets_batch`, because it loads Keras.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED
from gunreal.experience.spec import Spec


class Sequences(NamedTuple):
    """A reference to successive steps in each of N replays. It corresponds to `ReplaySequence` for one replay.

    Attributes:
      first: absolute number of the first step, int32 `[N]`.
      length: number of steps to learn from, int32 `[N]`. 0 if the replay has no suitable sequence yet.
    """

    first: Any
    length: Any


class BatchReplay:
    """The replays of N agents, whose steps have the same absolute numbers. It corresponds to `Replay` for one agent.

    Steps `oldest <= t < end` are complete. Of step `end` only the observation is available.

    Attributes:
      spec: shapes and constants.
      size: number of steps of a full replay.
      end: number of the newest complete step plus one, int32 scalar.
      oldest: the oldest step that may be sampled, int32 scalar.
      steps: numbers of the last `size` steps, int32 `[size]`. Those below `oldest` do not exist.
    """

    def __init__(self, read: Callable[[str, Any], Any], spec: Spec, size: int, end: Any, oldest: Any):
        """The replays behind `read(name, steps)`, which returns `[N, T, ...]` for steps int32 `[N, T]` or `[1, T]`."""
        self._read, self.spec, self.size = read, spec, size
        self.end, self.oldest = end, oldest
        self.steps = end - size + ops.arange(size, dtype="int32")

    def get(self, name: str, first: Any, length: int) -> Any:
        """The steps `first .. first + length - 1` of one array, `[N, length, ...]`.

        Args:
          name: see `Replay.get`.
          first: absolute numbers of the first steps, int32 `[N]`.
          length: number of steps. Steps that do not exist have arbitrary values.
        """
        return self._read(name, first[:, None] + ops.arange(length, dtype="int32"))

    def window(self, name: str) -> Any:
        """One array at all `steps`, `[N, size, ...]`."""
        return self._read(name, self.steps[None])

    def discounts(self, first: Any, length: int, discount: float) -> Any:
        """Discounts per step, float32 `[N, length]`: 0 if the step terminated the episode, else `discount`."""
        return discount * (1.0 - ops.cast(has(self.get("flags", first, length), TERMINATED), "float32"))

    def sequence_length(self, first: Any, limit: int) -> Any:
        """Lengths of the longest sequences from `first` that have a single bootstrap, at most `limit`, int32 `[N]`."""
        truncated = has(self.get("flags", first, limit), TRUNCATED)
        return ops.minimum(steps_until(truncated), self.end - first)


def has(flags: Any, flag: int) -> Any:
    """Whether a flag is set, bool."""
    return ops.bitwise_and(ops.cast(flags, "int32"), flag) != 0


def steps_until(ends: Any) -> Any:
    """Number of steps up to and including the first True in `ends` bool `[N, T]`, int32 `[N]`. T if there is none."""
    ends = ops.cast(ends, "int32")
    return ops.minimum(ops.sum(ops.cast(ops.cumsum(ends, axis=1) == 0, "int32"), axis=1) + 1, ends.shape[1])


def choose(wanted: Any, draw: Any) -> tuple[Any, Any]:
    """Chooses one of the True entries of each row, all with the same probability.

    Args:
      wanted: bool `[N, W]`.
      draw: uniform random numbers in [0, 1), float32 `[N]`.

    Returns:
      The chosen indices, int32 `[N]`, and whether there was a choice, bool `[N]`.
    """
    counts = ops.cumsum(ops.cast(wanted, "int32"), axis=1)
    count = counts[:, -1]
    place = ops.minimum(ops.cast(draw * ops.cast(count, "float32"), "int32"), count - 1)
    return ops.sum(ops.cast(counts <= place[:, None], "int32"), axis=1), count > 0


def uniform_sequences(replay: BatchReplay, draws: Any) -> Sequences:
    """The batch form of `uniform_sequence`. It uses the first column of `draws`."""
    complete = (replay.steps >= replay.oldest)[None]
    index, found = choose(~has(replay.window("flags"), RESET) & complete, draws[:, 0])
    first, t_max = replay.end - replay.size + index, replay.spec.t_max
    found = found & (replay.end - replay.oldest >= t_max)
    return Sequences(first, ops.where(found, replay.sequence_length(first, t_max), 0))


def pad_batch(rows: Any, length: Any) -> Any:
    """Sets the rows of `rows` `[N, T, ...]` from `length` int32 `[N]` on to zero."""
    kept = ops.arange(rows.shape[1], dtype="int32")[None] < length[:, None]
    return ops.where(ops.reshape(kept, (*kept.shape, *[1] * (rows.ndim - 2))), rows, ops.zeros_like(rows))


def clip_rewards(rewards: Any, clip: float) -> Any:
    """Clips rewards of any shape to `[-clip, clip]`. 0 disables clipping. The tensor form of `returns.clip_rewards`."""
    return ops.clip(rewards, -clip, clip) if clip > 0 else rewards


def n_step_returns(rewards: Any, discounts: Any, bootstrap: Any, length: Any) -> Any:
    """n-step returns of sequences, `R_t = r_t + discount_t R_{t+1}`. The batch form of `returns.n_step_returns`.

    Args:
      rewards: float32 `[N, T, ...]`.
      discounts: float32 `[N, T]`.
      bootstrap: value of the state after each sequence, `[N, ...]`.
      length: number of steps of each sequence, int32 `[N]`.

    Returns:
      float32, with the shape of `rewards`. It is 0 from `length` on.
    """
    column = (-1, *[1] * (rewards.ndim - 2))
    returns, after = [], ops.zeros_like(bootstrap)
    for t in reversed(range(rewards.shape[1])):
        last = ops.reshape(length == t + 1, column)
        after = rewards[:, t] + ops.reshape(discounts[:, t], column) * ops.where(last, bootstrap, after)
        returns.append(after)
    return pad_batch(ops.stack(returns[::-1], axis=1), length)
