"""A reducer: the owner of one slice of the weights and of its optimizer's state (a parameter server's shard)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.compression import unpack
from gunreal.cluster.optimizer import SliceOptimizer
from gunreal.config.schema import Config
from gunreal.config.version import VERSION


class Refused(Exception):
    """A machine cannot take part, because it would train something else. The message is one line."""


def check_version(version: str) -> None:
    """Raises Refused if this machine has another version of the package than the run."""
    if version != VERSION:
        raise Refused(f"it has gunreal {VERSION} instead of {version}; install the same version on all machines")


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

    def apply(self, weights: np.ndarray) -> None:
        """Rescales `weights` `[n]` in place."""
        weights[self.start : self.stop] *= np.float32(self.factor)
        weights[self.start : self.stop] += np.float32(self.offset)


class Reducer:
    """Adds up the gradients of a round and takes the step. A process of Ray runs it, as an actor.

    Args:
      version: version of the package.
      fields: configuration of the run.
      shard: the state to start with.

    Raises:
      Refused: this machine has another version.
    """

    def __init__(self, version: str, fields: dict[str, Any], shard: Shard):
        check_version(version)
        self._config = Config(**fields)
        self._weights = np.array(shard.weights, np.float32)
        self._optimizer = SliceOptimizer(self._config, shard.slots, shard.updates)
        self._total, self._count = np.zeros(0, np.float32), 0

    def add(self, *slices: np.ndarray) -> None:
        """Adds gradients of the present round as they arrive, float32 `[n]` or packed."""
        for part in slices:
            gradient = unpack(part)
            if self._count:
                self._total += gradient
            else:
                self._total = gradient.copy()
            self._count += 1

    def gather(self, count: int, *slices: np.ndarray) -> float:
        """Ends the sum of the gradients of a round, and keeps it until `apply`.

        Args:
          count: number of gradients that were added, or 0 to add `slices` only.
          *slices: all gradients, if `count` is 0.

        Returns:
          The squared norm of the result.

        Raises:
          ValueError: fewer gradients arrived.
        """
        if not count:
            self._count = 0
            self.add(*slices)
        added, self._count = self._count, 0
        if added != (count or len(slices)):
            raise ValueError(f"{added} instead of {count} gradients arrived")
        if self._config.reduction == "mean":  # the mean loss of the union of the batches; sums are added up
            self._total /= np.float32(added)
        return float(np.dot(self._total, self._total))

    def apply(self, rate: float, rescalings: list[Rescaling], *squares: float) -> tuple[int, np.ndarray]:
        """Takes a step along the gathered gradient, then rescales.

        Args:
          rate: learning rate.
          rescalings: changes of some weights after the step.
          *squares: what `gather` returned on each reducer. If their sum is not finite, no weight changes.

        Returns:
          The number of updates so far, and the weights `[n]`.
        """
        norm, most = math.sqrt(sum(squares)), self._config.max_grad_norm
        if not math.isfinite(norm):
            return self.updates(), self._weights
        if most > 0:
            self._total *= np.float32(most / max(norm, most))
        self._optimizer.step(self._weights, self._total, rate)
        for rescaling in rescalings:
            rescaling.apply(self._weights)
        return self.updates(), self._weights

    def updates(self) -> int:
        """Number of updates so far."""
        return self._optimizer.updates

    def shard(self) -> Shard:
        """The present state."""
        return Shard(self._weights, self._optimizer.slots, self._optimizer.updates)
