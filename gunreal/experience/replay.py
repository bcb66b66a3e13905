"""The replay rings: the meaning of their rows, and access to their steps.

Experience is written to a ring once and read in place. Queues carry references to it. The newest `t_max` steps of a
ring are the on-policy rollout, and the newest `replay_size` steps are the replay of the auxiliary tasks. The memory is
in `segment`.

Row `t` holds the frame `o_t`, the action `a_t` chosen for it, the reward `r_{t+1}`, and the flags of the result of
`a_t`. The last observation of an episode has its own row with the flag RESET. Its value is the bootstrap of a truncated
episode. The environment ignores its action, and no loss includes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gunreal.config.schema import close_match
from gunreal.experience.spec import Spec

FIRST, TERMINATED, TRUNCATED, RESET = 1, 2, 4, 8
_OF_ACTIONS = ("action", "reward", "log_mu", "value", "version")
ALIGN = 64  # bytes; alignment of arrays for vector instructions


class Past(NamedTuple):
    """The inputs of a recurrent network in addition to the observations of sequences, in NumPy or a framework.

    Attributes:
      state: recurrent state before the first step, float32 `[B, spec.state]`.
      last_action: `a_{t-1}`, int32 `[B, T]`. It is -1 at the first step of an episode, where the state is reset.
      last_reward: clipped reward `r_t`, float32 `[B, T]`. It is 0 at the first step of an episode.
    """

    state: Any
    last_action: Any
    last_reward: Any


def blank_past(spec: Spec, count: int) -> Past | None:
    """The past of `count` first steps of episodes, or None if the network has no memory."""
    if not spec.state:
        return None
    state = np.zeros((count, spec.state), np.float32)
    return Past(state, np.full((count, 1), -1, np.int32), np.zeros((count, 1), np.float32))


def empty_observations(spec: Spec, count: int) -> np.ndarray:
    """An uninitialized array for observations `[count, *spec.observation]`, aligned so that a backend need not copy."""
    shape, dtype = (count, *spec.observation), np.dtype(spec.dtype)
    room = np.empty(math.prod(shape) * dtype.itemsize + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + room.size - ALIGN].view(dtype).reshape(shape)


def concatenate_pasts(pasts: Sequence[Past | None]) -> Past | None:
    """Concatenates several pasts to one batch. Returns None if the network has no memory."""
    present = [past for past in pasts if past is not None]
    return Past(*(np.concatenate(arrays) for arrays in zip(*present, strict=True))) if present else None


class Replay:
    """The ring of one agent, as its tasks see it.

    Steps are numbered in each agent process, from 0. The numbers start at 0 again when the process is started again, as
    after most resumes, so they are no clock of the run.

    Steps `oldest <= t < end` are complete. Of step `end` only the observation is available.
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], index: int, spec: Spec, replay_size: int, end: int | None = None
    ):
        """The ring of agent `index` in the `arrays` of its segment.

        The newest `replay_size` steps are the replay: those before `end`, or before the newest step if it is None.
        """
        self._arrays, self._index, self._replay_size, self._end = arrays, index, replay_size, end
        self.spec = spec

    def at(self, end: int) -> Replay:
        """The same ring as it was when it ended at `end`, while the agent goes on."""
        return Replay(self._arrays, self._index, self.spec, self._replay_size, end)

    @property
    def end(self) -> int:
        """The number of the newest complete step plus one."""
        return int(self._arrays["end"][self._index]) if self._end is None else self._end

    @property
    def oldest(self) -> int:
        """The oldest step that may be sampled. Its whole stack is still in the ring."""
        return max(0, self.end - self._replay_size)

    def __len__(self) -> int:
        return self.end - self.oldest

    def get(self, name: str, first: int, length: int) -> np.ndarray:
        """Copies steps `first .. first + length - 1` of one array, `[length, ...]`.

        "flags" are bits, which `gunreal.tasks` exports:

        - FIRST (1): the frame is the first of an episode.
        - TERMINATED (2): the action terminated the episode, or lost a life that ends the return (`Step.life_lost`). In
          the second case, the episode goes on and no RESET follows.
        - TRUNCATED (4): the action was the last before the episode was cut off, as by a time limit.
        - RESET (8): the row holds the last observation of an episode. It follows the row of the last action. Its own
          action only resets the environment and its reward is 0, so there is nothing to learn from it.

        Args:
          name: "frame" (`spec.dtype`), "action" (int32), "reward" (float32, raw, `r_{t+1}`), "flags" (uint8), "age"
            (uint8, steps since the start of the episode, at most 255), "log_mu" (float32, log probability of the action
            when it was chosen), "value" (float32, value predicted for `o_t`), "version" (int32, number of updates of
            the weights that chose the action), "state" (float32 `[spec.state]`, with a recurrent network only: its
            state before `o_t` while acting; where FIRST is set, the network used zeros instead), or a recorded field.
          first: absolute number of the first step.
          length: number of steps. They may include step `end`, except of "action", "reward", "log_mu", "value" and
            "version". "flags" then has no TERMINATED and TRUNCATED of that step.

        Raises:
          KeyError: there is no array with this name.
          IndexError: the ring does not hold these steps.
        """
        if name not in self._arrays:
            raise KeyError(f"the replay has no {name!r}{close_match(name, self._arrays)}")
        array = self._arrays[name][self._index]
        newest = int(self._arrays["end"][self._index])
        held = max(0, newest - len(array) + 1), self.end + (name not in _OF_ACTIONS)
        if not held[0] <= first <= first + length <= held[1]:
            raise IndexError(
                f"steps {first} to {first + length - 1} of {name!r} are not in the ring, which holds {held[0]} to "
                f"{held[1] - 1}"
            )
        start = first % len(array)
        rows = array[start : start + length]
        return rows.copy() if len(rows) == length else np.concatenate((rows, array[: length - len(rows)]))

    def observations(self, steps: np.ndarray) -> np.ndarray:
        """The stacked observations `[n, *spec.observation]` at absolute `steps` `[n]`."""
        out = np.empty((len(steps), *self.spec.observation), self.spec.dtype)
        gather(self._arrays, self.spec, np.full(len(steps), self._index), np.asarray(steps), out)
        return out

    def discounts(self, first: int, length: int, discount: float) -> np.ndarray:
        """Discounts per step, float32 `[length]`: 0 if the step terminated the episode, else `discount`.

        They are 0 after terminations only: a truncated step and a step that only resets have `discount`.
        """
        terminated = self.get("flags", first, length) & TERMINATED != 0
        return np.where(terminated, np.float32(0), np.float32(discount))

    def sequence_length(self, first: int, limit: int) -> int:
        """The length of the longest sequence from `first` that has a single bootstrap, at most `limit`.

        Such a sequence ends with the first truncated step or with the newest step. It may cross terminations, because
        their discount is 0.
        """
        length = min(limit, self.end - first)
        (truncated,) = np.nonzero(self.get("flags", first, length) & TRUNCATED)
        return int(truncated[0]) + 1 if len(truncated) else length


def gather(
    arrays: Mapping[str, np.ndarray], spec: Spec, agents: np.ndarray, steps: np.ndarray, out: np.ndarray
) -> None:
    """Copies the stacked observations of `agents` `[n]` at absolute `steps` `[n]` to `out` `[n, *spec.observation]`."""
    age, stack = arrays["age"], spec.stack
    rows = stack_index(age, agents, steps, stack) + (agents * age.shape[1])[:, None]
    frames = arrays["frame"].reshape(-1, *spec.frame)
    stacked = out.reshape(len(agents), stack, *spec.frame)
    np.take(frames, rows, axis=0, out=stacked, mode="clip")  # "raise" would copy through a buffer


def stack_index(age: np.ndarray, agents: np.ndarray, steps: np.ndarray, stack: int) -> np.ndarray:
    """Ring rows of the `stack` newest frames at each step, oldest first.

    The first frame of an episode is repeated to fill a stack.

    Args:
      age: steps since the start of the episode, uint8 `[agents, ring]`.
      agents: int `[n]`.
      steps: absolute step numbers, int `[n]`.
      stack: number of frames in an observation.

    Returns:
      int64 `[n, stack]`.
    """
    ring = age.shape[1]
    back = np.minimum(np.arange(stack - 1, -1, -1), age[agents, steps % ring][:, None])
    return (steps[:, None] - back) % ring
