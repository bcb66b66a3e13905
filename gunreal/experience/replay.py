"""The replay rings: the meaning of their rows, and access to their steps.

Experience is written to a ring once and read in place. Queues carry references to it. The newest `t_max` steps of a
ring are the on-policy rollout, and the newest `replay_size` steps are the replay of the auxiliary tasks. The memory is
in `segment`.

Row `t` holds the frame `o_t`, the action `a_t` chosen for it, the reward `r_{t+1}`, and the flags of the result of
`a_t`. The last observation of an episode has its own row with the flag RESET. Its value is the bootstrap of a truncated
episode. The environment ignores its action, and no loss includes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gunreal.config.schema import close_match
from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Spec

FIRST, TERMINATED, TRUNCATED, RESET = 1, 2, 4, 8
_OF_ACTIONS = ("action", "reward", "log_mu", "value", "version")
ALIGN = 64  # bytes; alignment of arrays for vector instructions


class Past(NamedTuple):
    """The inputs of a network in addition to the images or vectors of sequences, in NumPy or a framework.

    Without a memory, `spec.state` is 0, and without vectors beside images, `spec.vectors` is.

    Attributes:
      state: recurrent state before the first step, float32 `[B, spec.state]`.
      last_action: `a_{t-1}`, int32 `[B, T]`. It is -1 at the first step of an episode, where the state is reset.
      last_reward: clipped reward `r_t`, float32 `[B, T]`. It is 0 at the first step of an episode.
      vector: the numbers that belong to the newest images, float32 `[B, T, spec.vectors]`.
    """

    state: Any
    last_action: Any
    last_reward: Any
    vector: Any


def row_arrays(spec: Spec) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype name of what a replay holds of each step, by name. `Replay.get` describes them."""
    found: dict[str, tuple[tuple[int, ...], str]] = {"frame": (spec.frame, spec.dtype), "action": ((), "int32")}
    found |= {"reward": ((), "float32"), "flags": ((), "uint8"), "age": ((), "uint8"), "log_mu": ((), "float32")}
    found |= {"value": ((), "float32"), "version": ((), "int32")}
    if spec.state:
        found["state"] = (spec.state,), "float32"
    if spec.vectors:
        found["vector"] = (spec.vectors,), "float32"
    return found | dict.fromkeys((*spec.bonuses, *(f"{task}.priority" for task in spec.priorities)), ((), "float32"))


def blank_past(spec: Spec, count: int) -> Past | None:
    """The past of `count` first steps of episodes with vectors of 0, or None if the network needs no past."""
    if not spec.needs_past:
        return None
    zeros = functools.partial(np.zeros, dtype=np.float32)
    last_action = np.full((count, 1), -1, np.int32)
    return Past(zeros((count, spec.state)), last_action, zeros((count, 1)), zeros((count, 1, spec.vectors)))


def empty_observations(spec: Spec, count: int) -> np.ndarray:
    """An uninitialized array for observations `[count, *spec.observation]`, aligned so that a backend need not copy."""
    shape, dtype = (count, *spec.observation), np.dtype(spec.dtype)
    room = np.empty(math.prod(shape) * dtype.itemsize + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + room.size - ALIGN].view(dtype).reshape(shape)


def concatenate_pasts(pasts: Sequence[Past | None]) -> Past | None:
    """Concatenates several pasts to one batch. Returns None if the network needs none."""
    present = [past for past in pasts if past is not None]
    return Past(*(np.concatenate(arrays) for arrays in zip(*present, strict=True))) if present else None


class Read(Protocol):
    """Reads the rows of N agents."""

    def __call__(self, name: str, steps: Any) -> Any:
        """One array at absolute `steps` int `[N, T]`, or `[1, T]` for the same steps of all agents: `[N, T, ...]`."""


class Replay:
    """The replays of N agents whose steps have the same numbers, as a task sees them, in NumPy or JAX.

    Steps `oldest <= t < end` are complete. Of step `end` only the observation is available.

    Steps are numbered in each agent process, from 0. The numbers start at 0 again when the process is started again, as
    after most resumes, so they are no clock of the run.

    Attributes:
      xp: the namespace of the arrays, `numpy` or `jax.numpy`. Both follow the Python array API standard.
      spec: shapes and constants.
      size: number of steps of a full replay.
      end: number of the newest complete step plus one. An int, or an int32 scalar in JAX.
      oldest: the oldest step that may be sampled. Its whole stack is still there.
      names: names of the arrays.
    """

    def __init__(self, read: Read, xp: Any, spec: Spec, size: int, end: Any, oldest: Any, names: Collection[str]):
        self._read, self.xp, self.spec, self.size = read, xp, spec, size
        self.end, self.oldest, self.names = end, oldest, names

    @property
    def steps(self) -> Any:
        """Numbers of the newest `size` steps, int `[size]`. Those below `oldest` do not exist."""
        return self.end - self.size + self.xp.arange(self.size)

    def get(self, name: str, first: Any, length: int) -> Any:
        """The steps `first .. first + length - 1` of one array, `[N, length, ...]`.

        Steps after the newest one repeat it, because shapes do not depend on data. A loss ignores them by its mask.

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
            state before `o_t` while acting; where FIRST is set, the network used zeros instead), "bonus" (float32, with
            tasks that give one only: what they gave for `o_t`), "bonus_value" (float32, the value of later bonuses
            predicted for `o_t`, if they have a discount of their own), "vector" (float32 `[spec.vectors]`, with a
            `Dict` of an image and numbers only), "<task>.priority" (float32, with prioritized tasks only: the newest
            priority that the loss of this task reported for the step, or 0 if there is none), or a recorded field.
          first: absolute numbers of the first steps, int `[N]`, or one number for all. They may be step `end`, except
            of "action", "reward", "log_mu", "value" and "version". "flags" then has no TERMINATED and TRUNCATED of that
            step.
          length: number of steps.

        Raises:
          KeyError: there is no array with this name.
          IndexError: a first step is not in the replay. Not raised in JAX, where it is the next one that is.
        """
        if name not in self.names:
            raise KeyError(f"the replay has no {name!r}{close_match(name, self.names)}")
        xp, newest = self.xp, self.end - (name in _OF_ACTIONS)
        first = xp.reshape(xp.asarray(first), (-1, 1))
        if xp is np and not ((self.oldest <= first) & (first <= newest)).all():
            wrong = first[(first < self.oldest) | (first > newest)][0]
            raise IndexError(f"step {wrong} of {name!r} is not in the replay, which holds {self.oldest} to {newest}")
        return self._read(name, xp.clip(first + xp.arange(length), self.oldest, newest))

    def rewards(self, first: Any, length: int) -> Any:
        """The rewards from which values learn, float32 `[N, length]`: clipped, and with the bonuses of tasks.

        Bonuses with a discount of their own are left out, because another value learns from them.
        """
        rewards = clip_rewards(self.get("reward", first, length), self.spec.reward_clip)
        return rewards + self.get("bonus", first + 1, length) if self.spec.bonuses == ("bonus",) else rewards

    def window(self, name: str) -> Any:
        """One array at all `steps`, `[N, size, ...]`. It has arbitrary values below `oldest`."""
        return self._read(name, self.steps[None])

    def discounts(self, first: Any, length: int, discount: float) -> Any:
        """Discounts per step, float32 `[N, length]`: 0 if the step terminated the episode, else `discount`.

        They are 0 after terminations only: a truncated step and a step that only resets have `discount`.
        """
        terminated = self.get("flags", first, length) & TERMINATED != 0
        return self.xp.where(terminated, np.float32(0), np.float32(discount))

    def sequence_length(self, first: Any, limit: int) -> Any:
        """Lengths of the longest sequences from `first` that have a single bootstrap, at most `limit`, int `[N]`.

        Such a sequence ends with the first truncated step or with the newest step. It may cross terminations, because
        their discount is 0.
        """
        truncated = self.get("flags", first, limit) & TRUNCATED != 0
        return self.xp.minimum(steps_until(truncated), self.end - first)

    def observations(self, steps: Any) -> Any:
        """The stacked observations `[N, T, *spec.observation]` at absolute `steps` int `[N, T]` or `[1, T]`."""
        return observations(self._read, self.spec, steps)


def steps_until(ends: Any) -> Any:
    """Number of steps up to and including the first True in `ends` bool `[N, T]`, int `[N]`. T if there is none."""
    xp = ends.__array_namespace__()
    return xp.where(xp.any(ends, axis=1), xp.argmax(ends, axis=1) + 1, ends.shape[1])


def stacked_steps(age: Any, steps: Any, stack: int) -> Any:
    """The steps whose frames form each observation, oldest first, `[..., stack]`.

    The first frame of an episode is repeated to fill a stack.

    Args:
      age: number of steps since the start of the episode, for each step, `[...]`.
      steps: absolute step numbers, int `[...]`.
      stack: number of frames in an observation.
    """
    xp = age.__array_namespace__()
    return steps[..., None] - xp.minimum(xp.arange(stack - 1, -1, -1, dtype=age.dtype), age[..., None])


def observations(read: Read, spec: Spec, steps: Any) -> Any:
    """The stacked observations `[N, T, *spec.observation]` at absolute `steps` int `[N, T]` or `[1, T]`."""
    age = read("age", steps)
    earlier = stacked_steps(age, steps, spec.stack)
    return read("frame", earlier.reshape(len(age), -1)).reshape(*age.shape, *spec.observation)


def past(read: Read, spec: Spec, steps: Any) -> Past | None:
    """The past at absolute `steps` int `[N, T]` or `[1, T]`, or None if the network needs none."""
    if not spec.needs_past:
        return None
    new = read("flags", steps) & FIRST != 0
    xp = new.__array_namespace__()
    return Past(
        read("state", steps[:, :1])[:, 0] if spec.state else xp.zeros((len(new), 0), dtype=xp.float32),
        xp.where(new, np.int32(-1), read("action", steps - 1)),
        xp.where(new, np.float32(0), clip_rewards(read("reward", steps - 1), spec.reward_clip)),
        read("vector", steps) if spec.vectors else xp.zeros((*new.shape, 0), dtype=xp.float32),
    )


def inputs(read: Read, spec: Spec, steps: Any) -> dict[str, Any]:
    """The inputs of the network at absolute `steps` int `[N, T]` or `[1, T]`: "observations", and "past" if needed."""
    known = past(read, spec, steps)
    return {"observations": observations(read, spec, steps)} | ({"past": known} if known else {})
