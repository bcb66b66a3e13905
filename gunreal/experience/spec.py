"""What the parts of a run agree on before it starts: shapes, types and constants, in one small picklable record."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Spec(NamedTuple):
    """The interface between an environment, its replay ring, the network and the tasks.

    Attributes:
      frame: shape of one frame as it is stored: `(channel, height, width)` for images, `(size,)` for vectors.
      stack: how many successive frames make one observation.
      dtype: "uint8" (images, values 0..255) or "float32" (vectors).
      num_actions: size of the discrete action set.
      t_max: length of a rollout and of a replay sequence, in agent steps.
      discount: gamma of the main task.
      reward_clip: rewards are clipped to +-reward_clip wherever they are learned from; 0 means never.
      state: floats of an agent's recurrent state; 0 for a network without memory.
    """

    frame: tuple[int, ...]
    stack: int
    dtype: str
    num_actions: int
    t_max: int = 20
    discount: float = 0.99
    reward_clip: float = 1.0
    state: int = 0

    @property
    def is_image(self) -> bool:
        """True where a frame is `(channel, height, width)`."""
        return len(self.frame) == 3

    @property
    def observation(self) -> tuple[int, ...]:
        """Shape of what the network sees: the stack lies along the first axis (`channel` or `size`)."""
        return (self.frame[0] * self.stack, *self.frame[1:])


class RecordedField(NamedTuple):
    """An extra array that a task wants stored with each step.

    Attributes:
      key: where the value is found: a key of a `Dict` observation, or else of the step's `info`.
      shape: its shape for one step, as it is stored.
      dtype: its NumPy type name.
      convert: a picklable function that makes `[n, *shape]` of what `n` environments gave, such as one that shrinks
        images; None where that is stored as it is.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    convert: Callable[[np.ndarray], np.ndarray] | None = None
