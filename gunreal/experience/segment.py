"""The memory that an agent process shares with the server: its replay rings and mailboxes."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import NamedTuple

import numpy as np

from gunreal.experience.replay import ALIGN, Past, Read, Replay, past, row_arrays, stacked_steps
from gunreal.experience.spec import RecordedField, Spec
from gunreal.experience.waits import BINS, Waited, Waits


class Layout(NamedTuple):
    """The size of a segment and the position of each array in it. It is sent to the agent process.

    Attributes:
      agents: number of agents (rings) in the segment.
      groups: number of groups in which the agents step.
      replay_size: number of steps that a task may sample from. 0 without tasks.
      extra: recorded fields of the tasks, by name.
      slots: maximum number of an agent's rollouts that may wait for the trainers before the agent pauses.
      mailboxes: shape and dtype name of arrays per agent outside the ring (bootstraps, targets), by name.
    """

    spec: Spec
    agents: int
    groups: int
    replay_size: int
    extra: dict[str, RecordedField]
    slots: int
    mailboxes: dict[str, tuple[tuple[int, ...], str]]

    @property
    def ring(self) -> int:
        """Number of rows of a ring: the replay, the rollouts being written or trained on, and the oldest stack.

        A recurrent network needs one more row ahead for its state, and one row before a step for the last action.
        """
        edges = max(self.spec.stack, 2) + 1 if self.spec.state else self.spec.stack
        return self.replay_size + (self.slots + 2) * self.spec.t_max + edges

    def rows(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of what a ring holds of each step, by name."""
        found = row_arrays(self.spec) | {name: (field.shape, field.dtype) for name, field in self.extra.items()}
        return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in found.items()}

    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every array of the segment, by name."""
        found = {name: ((self.agents, self.ring, *shape), dtype) for name, (shape, dtype) in self.rows().items()}
        found |= {
            "end": ((self.agents,), np.dtype(np.int64)),
            "trained": ((self.agents,), np.dtype(np.int64)),
            "allowance": ((1,), np.dtype(np.int64)),
            "busy_since": ((self.groups,), np.dtype(np.float64)),
            "waited": ((self.groups,), np.dtype(np.float64)),
            "waits": ((self.groups, BINS), np.dtype(np.int64)),
        }
        for name, (shape, dtype) in self.mailboxes.items():
            found[name] = ((self.agents, *shape), np.dtype(dtype))
        return found

    def nbytes(self) -> int:
        """Size of the segment in bytes."""
        return sum(_aligned(int(np.prod(shape)) * dtype.itemsize) for shape, dtype in self.arrays().values())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


class Segment:
    """The rings of one agent process, as NumPy arrays over anonymous shared memory.

    `arrays` holds the arrays of `Layout.arrays`, most of them with a leading agent axis. The memory has no name in the
    file system, so it is freed with its last user, even after SIGKILL. Another process gets access by inheriting `fd`.
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
        self._names = layout.rows()
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
        """Current number of an agent's rollouts that may wait before the agent pauses. The server sets it."""
        return int(self._allowance[0])

    @allowance.setter
    def allowance(self, rollouts: int) -> None:
        self._allowance[0] = rollouts

    def read(self, agents: np.ndarray) -> Read:
        """Access to the rows of `agents`, int `[N]`, by absolute steps."""
        ring = self.layout.ring
        starts = np.asarray(agents)[:, None] * ring

        def read(name: str, steps: np.ndarray) -> np.ndarray:
            array = self.arrays[name]
            return array.reshape(-1, *array.shape[2:]).take(starts + steps % ring, axis=0)

        return read

    def replay(self, agents: np.ndarray, end: int | None = None) -> Replay:
        """The replays of `agents` int `[N]`, which have the same number of steps.

        With `end`, they are as they were when they ended there, while the agents go on.
        """
        layout = self.layout
        end = int(self.end[agents[0]]) if end is None else end
        oldest = max(0, end - layout.replay_size)
        return Replay(self.read(agents), np, layout.spec, layout.replay_size, end, oldest, self._names)

    def gather(self, agents: np.ndarray, steps: np.ndarray, out: np.ndarray, spec: Spec | None = None) -> None:
        """Copies the stacked observations of `agents` `[n]` at absolute `steps` `[n]` to `out`.

        It does the same as `Replay.observations`, for pairs of agents and steps and without a copy in between. `out` is
        `[n, *spec.observation]`. The spec may be another one, such as `Spec.acting`.
        """
        spec, ring, age = spec or self.layout.spec, self.layout.ring, self.arrays["age"]
        rows = stacked_steps(age[agents, steps % ring], steps, spec.stack) % ring + (agents * ring)[:, None]
        frames = self.arrays["frame"].reshape(-1, *spec.frame)
        stacked = out.reshape(len(agents), spec.stack, *spec.frame)
        np.take(frames, rows, axis=0, out=stacked, mode="clip")  # "raise" would copy through a buffer

    def past(self, agents: np.ndarray, steps: np.ndarray, spec: Spec | None = None) -> Past | None:
        """The past of `agents` `[B]` at absolute `steps` `[B, T]`, or None if the network needs none."""
        return past(self.read(agents), spec or self.layout.spec, steps)

    def close(self) -> None:
        """Closes the file. Its memory stays mapped, with a descriptor of its own, while its arrays are in use."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gunreal-replay", 0)
    with tempfile.TemporaryFile() as file:  # already unlinked
        return os.dup(file.fileno())
