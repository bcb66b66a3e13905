"""The rule for a task's batch form: it does what the NumPy form does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gunreal.experience.segment import Segment
from gunreal.tasks.base import DRAWS, AuxiliaryTask, ReplaySequence

_SAMPLES = 8000
_COMPARED = 50  # sequences whose targets are compared


def has_batch_form(task: AuxiliaryTask) -> bool:
    """Whether a task has a batch form that belongs to its NumPy form, not to that of a class it inherits from."""
    classes = type(task).__mro__

    def depth(name: str) -> int:
        return next(place for place, cls in enumerate(classes) if name in vars(cls))

    own = all(depth(f"{name}_batch") <= depth(name) for name in ("sample", "targets"))
    return own and task.targets_batch is not None


def broken_rule(task: AuxiliaryTask, segment: Segment, bootstrap_shape: tuple[int, ...] | None) -> str | None:
    """Compares both forms of a task on the replay of one agent.

    Args:
      task: a task with a batch form.
      segment: the ring of one agent.
      bootstrap_shape: shape of one sequence's bootstrap, or None for a task without a bootstrap.

    Returns:
      The first rule that the batch form breaks, in one line, or None.
    """
    return _wrong_sampling(task, segment) or _wrong_targets(task, segment, bootstrap_shape)


def _wrong_sampling(task: AuxiliaryTask, segment: Segment) -> str | None:
    """Compares how often each sequence is drawn, by the chi-squared statistic of two samples."""
    rng = np.random.default_rng(2)
    own = Counter(task.sample(segment.agent(0), rng) for _ in range(_SAMPLES))
    first, length = task.sample_batch(_replays(segment, _SAMPLES), rng.random((_SAMPLES, DRAWS), np.float32))
    drawn = zip(np.asarray(first).tolist(), np.asarray(length).tolist(), strict=True)
    batch = Counter(ReplaySequence(*sequence) if sequence[1] else None for sequence in drawn)
    for sequence in batch:
        if sequence not in own and batch[sequence] > 20:
            return f"sample_batch() draws {sequence}, which sample() never draws"
    kinds = len(own | batch)
    distance = sum((own[kind] - batch[kind]) ** 2 / (own[kind] + batch[kind]) for kind in own | batch)
    if distance > kinds + 8 * kinds**0.5 + 20:
        return "sample_batch() draws sequences with other probabilities than sample()"
    return None


def _wrong_targets(task: AuxiliaryTask, segment: Segment, bootstrap_shape: tuple[int, ...] | None) -> str | None:
    from gunreal.tasks.batched import Sequences

    assert task.targets_batch is not None
    rng, replay = np.random.default_rng(3), segment.agent(0)
    sequences = [draw for draw in (task.sample(replay, rng) for _ in range(_COMPARED)) if draw is not None]
    if not sequences:
        return None
    bootstraps: Any = [None] * len(sequences)
    if bootstrap_shape is not None:
        bootstraps = rng.standard_normal((len(sequences), *bootstrap_shape)).astype(np.float32)
    own = [task.targets(replay, *each) for each in zip(sequences, bootstraps, strict=True)]
    first, length = np.array(sequences, np.int32).T
    given = None if bootstrap_shape is None else bootstraps
    batch = task.targets_batch(_replays(segment, len(sequences)), Sequences(first, length), given)
    if set(batch) != set(own[0]):
        return f"targets_batch() returned {sorted(batch)}, but targets() {sorted(own[0])}"
    for name, tensor in batch.items():
        array, expected = np.asarray(tensor), np.stack([targets[name] for targets in own])
        if array.shape != expected.shape or array.dtype.kind != expected.dtype.kind:
            kinds = f"{array.dtype} {array.shape} instead of {expected.dtype} {expected.shape}"
            return f"target {name!r} of targets_batch() is {kinds}"
        if not np.allclose(array, expected, rtol=1e-4, atol=1e-5):
            return f"target {name!r} of targets_batch() differs from that of targets()"
    return None


def _replays(segment: Segment, count: int) -> Any:
    """`count` times the replay of one agent, as a `BatchReplay`."""
    from keras import ops

    from gunreal.tasks.batched import BatchReplay

    replay = segment.agent(0)

    def read(name: str, steps: Any) -> Any:
        array, numbers = segment.arrays[name][0], ops.convert_to_numpy(steps)
        return ops.convert_to_tensor(array[np.broadcast_to(numbers, (count, numbers.shape[1])) % len(array)])

    return BatchReplay(read, replay.spec, segment.layout.replay_size, replay.end, replay.oldest)
