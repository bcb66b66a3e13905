"""The replay rings: what a row of one means, and how steps are read from it.

Experience is written to a ring once and read in place; queues carry references. The newest `t_max` steps of a ring are
the on-policy rollout, the newest `replay_size` are the auxiliary tasks' replay. `segment` has the memory.

A step's row `t` holds the frame `o_t`, the action `a_t` that was chosen on it, the reward `r_{t+1}` and the flags of
what `a_t` led to. An episode's last observation has a row of its own, flagged RESET: its value bootstraps a truncated
episode, its action is ignored by the environment, and it is in no loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gunreal.experience.spec import Spec

FIRST, TERMINATED, TRUNCATED, RESET = 1, 2, 4, 8
ALIGN = 64  # bytes: what vector instructions want arrays to start at


class Past(NamedTuple):
    """What a recurrent network takes beside the observations of sequences, each with a leading batch axis.

    Attributes:
      state: float32 `[B, spec.state]`, the recurrent state before the first step.
      last_action: int32 `[B, T]`, `a_{t-1}`; -1 at an episode's first step, where the state starts from zeros.
      last_reward: float32 `[B, T]`, `r_t`, clipped as it is learned from; 0 at an episode's first step.
    """

    state: np.ndarray
    last_action: np.ndarray
    last_reward: np.ndarray


def blank_past(spec: Spec, count: int) -> Past | None:
    """What is before `count` episodes' first steps; None where the network has no memory."""
    if not spec.state:
        return None
    state = np.zeros((count, spec.state), np.float32)
    return Past(state, np.full((count, 1), -1, np.int32), np.zeros((count, 1), np.float32))


def empty_observations(spec: Spec, count: int) -> np.ndarray:
    """Room for observations `[count, *spec.observation]`, which starts where a backend can use it in place."""
    shape, dtype = (count, *spec.observation), np.dtype(spec.dtype)
    room = np.empty(math.prod(shape) * dtype.itemsize + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + room.size - ALIGN].view(dtype).reshape(shape)


def concatenate_pasts(pasts: Sequence[Past | None]) -> Past | None:
    """One batch of several; None where the network has no memory."""
    present = [past for past in pasts if past is not None]
    return Past(*(np.concatenate(arrays) for arrays in zip(*present, strict=True))) if present else None


class Replay:
    """One agent's ring, as its tasks see it. Steps are named by absolute numbers that never repeat.

    Steps `oldest <= t < end` are complete; of step `end` only the observation is there yet.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], index: int, spec: Spec, replay_size: int):
        """The ring of agent `index` in its segment's `arrays`; the newest `replay_size` steps are the replay."""
        self._arrays, self._index, self._replay_size = arrays, index, replay_size
        self.spec = spec

    @property
    def end(self) -> int:
        """One past the newest complete step."""
        return int(self._arrays["end"][self._index])

    @property
    def oldest(self) -> int:
        """The oldest step that may be sampled; its whole stack is still in the ring."""
        return max(0, self.end - self._replay_size)

    def __len__(self) -> int:
        return self.end - self.oldest

    def get(self, name: str, first: int, length: int) -> np.ndarray:
        """Steps `first .. first + length - 1` of one array, `[length, ...]`, as a copy.

        `name` is "frame", "action" (int32), "reward" (float32, raw, `r_{t+1}`), "flags" (uint8), "age" (uint8, steps
        since the episode's start, at most 255), "log_mu", "value", "version", or a recorded field. "frame" may go up to
        `end`.
        """
        array = self._arrays[name][self._index]
        start = first % len(array)
        rows = array[start : start + length]
        return rows.copy() if len(rows) == length else np.concatenate((rows, array[: length - len(rows)]))

    def observations(self, steps: np.ndarray) -> np.ndarray:
        """The stacked observations at absolute `steps` `[n]`: `[n, *spec.observation]`."""
        out = np.empty((len(steps), *self.spec.observation), self.spec.dtype)
        gather(self._arrays, self.spec, np.full(len(steps), self._index), np.asarray(steps), out)
        return out

    def discounts(self, first: int, length: int, discount: float) -> np.ndarray:
        """Per-step discounts float32 `[length]`: 0 where the step terminated the episode, `discount` elsewhere."""
        terminated = self.get("flags", first, length) & TERMINATED != 0
        return np.where(terminated, np.float32(0), np.float32(discount))

    def sequence_length(self, first: int, limit: int) -> int:
        """Steps from `first` on, at most `limit`, that can be learned from with one bootstrap: up to and with the first
        truncated step, or up to the newest one. Terminations are crossed: their discount is 0."""
        length = min(limit, self.end - first)
        (truncated,) = np.nonzero(self.get("flags", first, length) & TRUNCATED)
        return int(truncated[0]) + 1 if len(truncated) else length


def gather(
    arrays: Mapping[str, np.ndarray], spec: Spec, agents: np.ndarray, steps: np.ndarray, out: np.ndarray
) -> None:
    """Copies stacked observations of `agents` `[n]` at absolute `steps` `[n]` to `out` `[n, *spec.observation]`."""
    age, stack = arrays["age"], spec.stack
    rows = stack_index(age, agents, steps, stack) + (agents * age.shape[1])[:, None]
    frames = arrays["frame"].reshape(-1, *spec.frame)
    stacked = out.reshape(len(agents), stack, *spec.frame)
    np.take(frames, rows, axis=0, out=stacked, mode="clip")  # "raise" would copy through a buffer


def stack_index(age: np.ndarray, agents: np.ndarray, steps: np.ndarray, stack: int) -> np.ndarray:
    """Ring rows of the `stack` newest frames at each step, oldest first; an episode's first frame is repeated.

    Args:
      age: uint8 `[agents, ring]`, steps since the episode's start.
      agents: int `[n]`.
      steps: absolute step numbers, int `[n]`.
      stack: frames of an observation.

    Returns:
      int64 `[n, stack]`.
    """
    ring = age.shape[1]
    back = np.minimum(np.arange(stack - 1, -1, -1), age[agents, steps % ring][:, None])
    return (steps[:, None] - back) % ring
