"""The replay rings: every agent's newest steps, in memory that the agent process and the server share.

Experience is written here once and read in place; queues carry references. The newest `t_max` steps of a ring are the
on-policy rollout, the newest `replay_size` are the auxiliary tasks' replay.

A step's row `t` holds the frame `o_t`, the action `a_t` that was chosen on it, the reward `r_{t+1}` and the flags of
what `a_t` led to. An episode's last observation has a row of its own, flagged RESET: its value bootstraps a truncated
episode, its action is ignored by the environment, and it is in no loss.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Field, Spec
from gunreal.experience.waits import BINS, Waited, Waits

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


class Layout(NamedTuple):
    """Everything that fixes a segment's size and the place of each array in it; it crosses the process boundary.

    Attributes:
      spec: shapes and constants.
      agents: number of agents (rings) in the segment.
      groups: number of groups that they step in.
      replay_size: how many steps a task may sample from.
      extra: the tasks' recorded fields, by name.
      slots: how many rollouts of an agent may wait for the trainers before the agent does, at most.
      mailboxes: per-agent arrays outside of the ring (bootstrap replies, targets): name -> (shape, dtype name).
    """

    spec: Spec
    agents: int
    groups: int
    replay_size: int
    extra: dict[str, Field]
    slots: int
    mailboxes: dict[str, tuple[tuple[int, ...], str]]

    @property
    def ring(self) -> int:
        """Rows of a ring: the replay, the rollouts that are still being written or trained on, and the oldest stack.

        A recurrent state is written one row ahead, and a step's last action lies one row behind."""
        edges = max(self.spec.stack, 2) + 1 if self.spec.state else self.spec.stack
        return self.replay_size + (self.slots + 2) * self.spec.t_max + edges

    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of every array of the segment, by name."""
        rows = (self.agents, self.ring)
        found: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            "frame": ((*rows, *self.spec.frame), np.dtype(self.spec.dtype)),
            "action": (rows, np.dtype(np.int32)),
            "reward": (rows, np.dtype(np.float32)),
            "flags": (rows, np.dtype(np.uint8)),
            "age": (rows, np.dtype(np.uint8)),
            "log_mu": (rows, np.dtype(np.float32)),
            "value": (rows, np.dtype(np.float32)),
            "version": (rows, np.dtype(np.int32)),
            "end": ((self.agents,), np.dtype(np.int64)),
            "trained": ((self.agents,), np.dtype(np.int64)),
            "allowance": ((1,), np.dtype(np.int64)),
            "busy_since": ((self.groups,), np.dtype(np.float64)),
            "waited": ((self.groups,), np.dtype(np.float64)),
            "waits": ((self.groups, BINS), np.dtype(np.int64)),
        }
        if self.spec.state:
            found["state"] = ((*rows, self.spec.state), np.dtype(np.float32))
        for name, field in self.extra.items():
            found[name] = ((*rows, *field.shape), np.dtype(field.dtype))
        for name, (shape, dtype) in self.mailboxes.items():
            found[name] = ((self.agents, *shape), np.dtype(dtype))
        return found

    def nbytes(self) -> int:
        """Size of the segment in bytes."""
        return sum(_aligned(int(np.prod(shape)) * dtype.itemsize) for shape, dtype in self.arrays().values())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


class Segment:
    """The rings of one agent process: NumPy arrays over anonymous shared memory that vanishes with its last user.

    Attributes are the arrays of `Layout.arrays`, most with a leading agent axis. The memory has no name in the file
    system, so that not even SIGKILL can leave it behind; another process gets it by inheriting `fd`.
    """

    def __init__(self, layout: Layout, fd: int | None = None):
        self.layout = layout
        created = fd is None
        if fd is None:
            fd = _anonymous_file()
            os.ftruncate(fd, layout.nbytes())
        self.fd = fd
        self._map = mmap.mmap(fd, layout.nbytes())
        self.arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, (shape, dtype) in layout.arrays().items():
            count = int(np.prod(shape))
            self.arrays[name] = np.frombuffer(self._map, dtype, count, offset).reshape(shape)
            offset += _aligned(count * dtype.itemsize)
        self.end, self.trained, self.busy_since = (self.arrays[n] for n in ("end", "trained", "busy_since"))
        self._allowance = self.arrays["allowance"]
        if created:
            self.allowance = layout.slots
        self.waits = Waits(Waited(self.arrays["waited"], self.arrays["waits"]))

    @property
    def allowance(self) -> int:
        """How many rollouts of an agent may now wait for the trainers before the agent does; the server sets it."""
        return int(self._allowance[0])

    @allowance.setter
    def allowance(self, rollouts: int) -> None:
        self._allowance[0] = rollouts

    def agent(self, index: int) -> Replay:
        """The ring of one agent."""
        return Replay(self, index)

    def gather(self, agents: np.ndarray, steps: np.ndarray, out: np.ndarray) -> None:
        """Copies stacked observations of `agents` `[n]` at absolute `steps` `[n]` to `out` `[n, *spec.observation]`."""
        ring, stack = self.layout.ring, self.layout.spec.stack
        rows = stack_index(self.arrays["age"], agents, steps, stack) + (agents * ring)[:, None]
        frames = self.arrays["frame"].reshape(-1, *self.layout.spec.frame)
        stacked = out.reshape(len(agents), stack, *self.layout.spec.frame)
        np.take(frames, rows, axis=0, out=stacked, mode="clip")  # "raise" would copy through a buffer

    def past(self, agents: np.ndarray, steps: np.ndarray) -> Past | None:
        """What a recurrent network takes beside the observations of `agents` `[B]` at absolute `steps` `[B, T]`; None
        for another network."""
        spec, arrays, ring = self.layout.spec, self.arrays, self.layout.ring
        if not spec.state:
            return None
        rows, before = (agents[:, None], steps % ring), (agents[:, None], (steps - 1) % ring)
        first = arrays["flags"][rows] & FIRST != 0
        return Past(
            arrays["state"][agents, steps[:, 0] % ring],
            np.where(first, np.int32(-1), arrays["action"][before]),
            np.where(first, np.float32(0), clip_rewards(arrays["reward"][before], spec.reward_clip)),
        )

    def close(self) -> None:
        """Gives up this process's hold of the memory; arrays that are still in use keep it mapped until they go."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gunreal-replay", 0)
    with tempfile.TemporaryFile() as file:  # already unlinked
        return os.dup(file.fileno())


class Replay:
    """One agent's ring, as its tasks see it. Steps are named by absolute numbers that never repeat.

    Steps `oldest <= t < end` are complete; of step `end` only the observation is there yet.
    """

    def __init__(self, segment: Segment, index: int):
        self._segment, self._index = segment, index
        self.spec = segment.layout.spec

    @property
    def end(self) -> int:
        """One past the newest complete step."""
        return int(self._segment.end[self._index])

    @property
    def oldest(self) -> int:
        """The oldest step that may be sampled; its whole stack is still in the ring."""
        return max(0, self.end - self._segment.layout.replay_size)

    def __len__(self) -> int:
        return self.end - self.oldest

    def get(self, name: str, first: int, length: int) -> np.ndarray:
        """Steps `first .. first + length - 1` of one array, `[length, ...]`, as a copy.

        `name` is "frame", "action" (int32), "reward" (float32, raw, `r_{t+1}`), "flags" (uint8), "age" (uint8, steps
        since the episode's start, at most 255), "log_mu", "value", "version", or a recorded field. "frame" may go up to
        `end`.
        """
        array = self._segment.arrays[name][self._index]
        start = first % len(array)
        rows = array[start : start + length]
        return rows.copy() if len(rows) == length else np.concatenate((rows, array[: length - len(rows)]))

    def observations(self, steps: np.ndarray) -> np.ndarray:
        """The stacked observations at absolute `steps` `[n]`: `[n, *spec.observation]`."""
        out = np.empty((len(steps), *self.spec.observation), self.spec.dtype)
        self._segment.gather(np.full(len(steps), self._index), np.asarray(steps), out)
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
