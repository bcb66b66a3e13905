"""The interface between environments and agent processes: copies that step together, and the result of a step."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from gunreal.envs.raw import Raw


class AgentFailure(RuntimeError):
    """A run or an evaluation ends because of its environments or tasks.

    The environments keep failing: agent processes, nodes, or a device run whose reward is not a finite number. Or a
    task fails (`TaskFailure`). If there is a traceback, the message ends with it.
    """


class Step(NamedTuple):
    """The result of one step of `n` environments. The caller may keep the arrays.

    Attributes:
      frame: newest frames, `[n, *frame]` uint8 (images, NCHW) or float32 (vectors). The caller stacks them.
      reward: raw rewards, float32 `[n]`. 0 if the environment was reset.
      terminated: bool `[n]`.
      truncated: bool `[n]`. Never set together with `terminated`.
      extra: values of `extra_keys`, `[n, ...]` each.
      life_lost: bool `[n]` or False, whether returns end as if the episode had terminated, although it goes on.
      vector: the numbers beside the images, float32 `[n, raw.numbers]`, if there are any.
    """

    frame: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extra: dict[str, np.ndarray]
    life_lost: np.ndarray | bool = False
    vector: Any = None


class VectorEnv(Protocol):
    """Several copies of one environment that step together. Only the caller resets them.

    An episode must be a pure function of its seed and its actions, whatever the environment did before. A run can then
    be resumed by replaying actions (`make.restore`).

    Attributes:
      num_envs: number of copies `n`.
      frame: shape of a frame, `(channel, height, width)` for images and `(size,)` for vectors.
      dtype: "uint8" (images) or "float32" (vectors).
      num_actions: number of discrete actions.
      raw: space of the raw observations, and the number of the first action.
    """

    num_envs: int
    frame: tuple[int, ...]
    dtype: str
    num_actions: int
    raw: Raw

    def step(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> Step:
        """Steps or resets every copy.

        A reset has reward 0 and is not done. The first step, and every step after the end of an episode, must be a
        reset.

        Args:
          actions: int32 `[n]`.
          reset: bool `[n]`, whether to reset the environment instead of taking the action.
          seeds: int64 `[n]`, seeds for the resets.
        """

    def close(self) -> None:
        """Closes the environments."""
