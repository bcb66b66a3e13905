"""What an environment is to an agent process: copies that step together, and what a step of them gives."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Step(NamedTuple):
    """What one step of `n` environments led to; the arrays are the caller's to keep.

    Attributes:
      frame: `[n, *frame]` uint8 (images, NCHW) or float32 (vectors): the newest frame only, the caller stacks.
      reward: float32 `[n]`, raw; 0 where the environment was reset.
      terminated: bool `[n]`.
      truncated: bool `[n]`; never set together with `terminated`.
      extra: what `extra_keys` asked for, `[n, ...]` each.
    """

    frame: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extra: dict[str, np.ndarray]


class VectorEnv(Protocol):
    """Several copies of one environment that step together and that only their caller resets.

    An episode is a pure function of its seed and its actions, whatever the environment did before: that is what lets a
    run be resumed by replaying actions (`make.restore`).
    """

    num_envs: int
    frame: tuple[int, ...]
    dtype: str
    num_actions: int

    def send(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> None:
        """Starts one step with int32 `[n]` actions; where bool `[n]` `reset` is set, a reset with int64 `[n]` `seeds`.

        A reset has reward 0 and is not done. The first step, and the step after an episode's end, must be a reset.
        """

    def recv(self) -> Step:
        """Completes the step."""

    def close(self) -> None:
        """Frees the environments."""
