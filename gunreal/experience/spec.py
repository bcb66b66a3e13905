"""Shapes, dtypes and constants that all parts of a run share, in one small picklable record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Spec(NamedTuple):
    """The interface between an environment, its replay ring, the network and the tasks.

    Attributes:
      frame: shape of one stored frame, `(channel, height, width)` for images and `(size,)` for vectors.
      stack: number of successive frames in one observation.
      dtype: "uint8" (images, values 0..255) or "float32" (vectors).
      num_actions: size of the discrete action set.
      t_max: length of a rollout and of a replay sequence, in agent steps.
      discount: discount factor gamma of the main task.
      reward_clip: bound for clipping rewards in all losses. 0 disables clipping.
      state: number of floats in an agent's recurrent state. 0 for a network without memory.
      bonus: whether tasks give rewards of their own (`AuxiliaryTask.bonus`).
      bonus_discount: discount of a value of their own for these rewards. 0 if they are added to the reward.
      bonus_steps: number of observations from which these rewards are computed, 1 or 2.
      with_past: whether the last actions are inputs of a network that needs no past.
      vectors: number of floats that an observation has beside an image, such as a compass. They are not stacked.
      priorities: names of the tasks that report priorities (`AuxiliaryTask.prioritized`).
    """

    frame: tuple[int, ...]
    stack: int
    dtype: str
    num_actions: int
    t_max: int = 20
    discount: float = 0.99
    reward_clip: float = 1.0
    state: int = 0
    bonus: bool = False
    bonus_discount: float = 0.0
    bonus_steps: int = 1
    with_past: bool = False
    vectors: int = 0
    priorities: tuple[str, ...] = ()

    @property
    def is_image(self) -> bool:
        """Whether a frame is an image `(channel, height, width)`."""
        return len(self.frame) == 3

    @property
    def needs_past(self) -> bool:
        """Whether the network has other inputs than observations: a memory, or vectors beside images."""
        return bool(self.state or self.vectors or self.with_past)

    @property
    def bonuses(self) -> tuple[str, ...]:
        """Names of what is stored of each state for bonuses: "bonus", and "bonus_value" with a value of their own."""
        return ("bonus", "bonus_value")[: self.bonus + (self.bonus_discount > 0)]

    @property
    def acting(self) -> Spec:
        """The inputs while acting. For bonuses of two observations, a stack has one frame more, and there is a past."""
        return self if self.bonus_steps == 1 else self._replace(stack=self.stack + 1, with_past=True)

    @property
    def observation(self) -> tuple[int, ...]:
        """Shape of one observation. Frames are stacked along the first axis (`channel` or `size`)."""
        return (self.frame[0] * self.stack, *self.frame[1:])


class RecordedField(NamedTuple):
    """An extra array to store with each step for a task.

    Attributes:
      key: key of the value in a `Dict` observation or, if absent there, in `info`.
      shape: shape of the stored value for one step.
      dtype: NumPy dtype name of the stored value.
      convert: picklable function that converts the values of `n` environments to `[n, *shape]`, for example by
        shrinking images. None stores the values unchanged.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    convert: Callable[[np.ndarray], np.ndarray] | None = None

    def converted(self, values: Any) -> Any:
        """The values of `n` environments as they are stored, `[n, *shape]`."""
        return values if self.convert is None else self.convert(values)
