"""A reducer: the owner of one slice of the weights and of its optimizer's state (a parameter server's shard)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.compression import unpack
from gunreal.cluster.optimizer import SliceOptimizer
from gunreal.config.schema import Config


class Shard(NamedTuple):
    """The state of a reducer.

    Attributes:
      weights: float32 `[n]`.
      slots: averages of the optimizer, float32 `[n]` each.
      updates: number of updates of the optimizer.
    """

    weights: np.ndarray
    slots: list[np.ndarray]
    updates: int


class Rescaling(NamedTuple):
    """`weights[start:stop] = weights[start:stop] * factor + offset`, in places of a slice."""

    start: int
    stop: int
    factor: float
    offset: float


class Reducer:
    """Adds up the gradients of a round and takes the step. A process of Ray runs it, as an actor."""

    def __init__(self, fields: dict[str, Any], shard: Shard):
        self._config = Config(**fields)
        self._weights = np.array(shard.weights, np.float32)
        self._optimizer = SliceOptimizer(self._config, shard.slots, shard.updates)
        self._total = np.zeros(0, np.float32)

    def gather(self, *slices: np.ndarray) -> np.ndarray:
        """Adds up the gradients of some nodes, and keeps the result until `apply`.

        Args:
          *slices: the gradient of each node, float32 `[n]` or packed.

        Returns:
          float64 `[1 + nodes]`: the squared norm of the result, then that of each node's gradient. A norm that is not
          finite belongs to a node whose gradient cannot be used.
        """
        gradients = [unpack(part) for part in slices]
        self._total = gradients[0].copy()
        for gradient in gradients[1:]:
            self._total += gradient
        if self._config.reduction == "mean":  # the mean loss of the union of the batches; sums are added up
            self._total /= np.float32(len(gradients))
        return np.array([np.dot(x, x) for x in (self._total, *gradients)], np.float64)

    def apply(self, scale: float, rate: float, rescalings: list[Rescaling]) -> tuple[int, np.ndarray]:
        """Takes a step along `scale` times the gathered gradient, then rescales.

        Returns:
          The number of updates so far, and the weights `[n]`.
        """
        self._total *= np.float32(scale)
        self._optimizer.step(self._weights, self._total, rate)
        for start, stop, factor, offset in rescalings:
            self._weights[start:stop] *= np.float32(factor)
            self._weights[start:stop] += np.float32(offset)
        return self.updates(), self._weights

    def updates(self) -> int:
        """Number of updates so far."""
        return self._optimizer.updates

    def shard(self) -> Shard:
        """The present state."""
        return Shard(self._weights, self._optimizer.slots, self._optimizer.updates)
