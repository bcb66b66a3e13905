"""Random experience, for dry runs and tests."""

from __future__ import annotations

import numpy as np

from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED
from gunreal.experience.segment import Layout, Segment
from gunreal.experience.spec import RecordedField, Spec


def synthetic_segment(spec: Spec, extra: dict[str, RecordedField], steps: int, seed: int = 0) -> Segment:
    """Makes the ring of one agent with `steps` steps of random experience.

    Frames, actions and recorded fields are random. Rewards are -1, 0 or 1. Episodes are terminated or truncated after
    `1 .. 3 * t_max` steps. The replay holds `replay_size(t_max)` steps. More steps wrap around the ring.
    """
    rng = np.random.default_rng(seed)
    layout = Layout(spec, agents=1, groups=1, replay_size=replay_size(spec.t_max), extra=extra, slots=1, mailboxes={})
    segment = Segment(layout)
    arrays = {name: array[0] for name, array in segment.arrays.items() if array.ndim > 1}
    for array in arrays.values():
        array[...] = _random(rng, array.shape, array.dtype)
    arrays["action"][:] = rng.integers(spec.num_actions, size=layout.ring)
    arrays["log_mu"][:] = -np.log(spec.num_actions)
    flags, age, left = FIRST, 0, 0
    for row in np.arange(steps + 1) % layout.ring:
        if flags & FIRST:
            age, left = 0, int(rng.integers(1, 3 * spec.t_max + 1))
        left -= 1
        if left == 0:
            flags |= int(rng.choice([TERMINATED, TRUNCATED]))
        arrays["flags"][row], arrays["age"][row] = flags, min(age, 255)
        arrays["reward"][row] = 0 if flags & RESET else rng.integers(-1, 2)
        flags = FIRST if flags & RESET else RESET if left == 0 else 0
        age += 1
    segment.end[0] = steps
    segment.close()  # no other process needs the descriptor, and the arrays keep the memory
    return segment


def replay_size(t_max: int) -> int:
    """Size of the synthetic replay, in steps. It holds episodes of each length, also with very short rollouts."""
    return max(20 * t_max, 60)


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype == np.uint8:
        return rng.integers(256, size=shape, dtype=np.uint8)  # frames, which as int64 would take 8 times the memory
    return rng.integers({"b": 2, "u": 256}.get(dtype.kind, 128), size=shape).astype(dtype)
