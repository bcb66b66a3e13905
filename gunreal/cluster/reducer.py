"""A reducer: the owner of one slice of the weights and of its optimizer's state (a parameter server's shard)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.compression import unpack
from gunreal.cluster.flat import bounds, within
from gunreal.config.schema import Config
from gunreal.config.version import VERSION
from gunreal.learning.normalizer import Moments, rescaled
from gunreal.learning.optimizer import clip_factor, update

_BLOCK = 2**14  # weights that take a step at a time, so that the results in between stay in the processor's cache


class Refused(Exception):
    """A machine cannot take part, because it would train something else. The message is one line."""


def check_version(version: str) -> None:
    """Raises Refused if this machine has another version of the package than the run."""
    if version != VERSION:
        raise Refused(f"it has gunreal {VERSION} instead of {version}; install the same version on all machines")


class Shard(NamedTuple):
    """The state of a reducer.

    Attributes:
      weights: the weights, and a moving average of them for each task that asks for one, float32 `[rows, n]`.
      averages: averages of the gradients, of each kind that the optimizer keeps, float32 `[n]` each.
      updates: number of updates of the optimizer.
    """

    weights: np.ndarray
    averages: list[np.ndarray]
    updates: int

    def within(self, part: slice) -> Shard:
        """The state for a slice of the weights."""
        return Shard(self.weights[:, part], [average[part] for average in self.averages], self.updates)


class Own(NamedTuple):
    """What tasks ask for in a step.

    Attributes:
      averages: rates of the moving averages.
      apart: places whose gradients nodes have clipped. They count in no norm.
      rates: places with factors of the learning rate.
    """

    averages: list[float] = []
    apart: list[slice] = []
    rates: list[tuple[slice, float]] = []

    def within(self, part: slice) -> Own:
        """The same for a slice of the weights."""
        rates = [(within(place, part), rate) for place, rate in self.rates]
        return self._replace(apart=[within(place, part) for place in self.apart], rates=rates)


class Rescaling(NamedTuple):
    """A change of the value layer after a step: the arguments of `learning.normalizer.rescaled`.

    Attributes:
      kernel: place of the kernel in the weights.
      bias: place of the bias in the weights.
      known: moments of the returns so far.
      new: moments of the returns after the step.
      least: lower bound of the standard deviation.
    """

    kernel: slice
    bias: slice
    known: Moments
    new: Moments
    least: float

    def within(self, part: slice) -> Rescaling:
        """The same change for a slice of the weights."""
        return self._replace(kernel=within(self.kernel, part), bias=within(self.bias, part))

    def apply(self, weights: np.ndarray) -> None:
        """Rescales the weights `[rows, n]` in place. No average has a layer of values."""
        layer = weights[0, self.kernel], weights[0, self.bias]
        weights[0, self.kernel], weights[0, self.bias] = rescaled(*layer, self.known, self.new, self.least, np)


class Reducer:
    """Adds up the gradients of a round and takes the step. A process of Ray runs it, as an actor.

    Raises:
      Refused: this machine has another version.
    """

    def __init__(self, version: str, fields: dict[str, Any], shard: Shard, own: Own):
        check_version(version)
        self._own = own
        self._config = Config(**fields)
        self._weights = np.array(shard.weights, np.float32)
        self._averages = [np.array(average, np.float32) for average in shard.averages]
        self._updates = shard.updates
        self._total, self._count = np.zeros(0, np.float32), 0
        self._apart: list[np.ndarray] = []

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
          The squared norm of the result, without what is clipped apart.

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
        self._apart = [self._total[place].copy() for place in self._own.apart]
        for place in self._own.apart:
            self._total[place] = 0
        return float(np.dot(self._total, self._total))

    def apply(self, rate: float, rescalings: list[Rescaling], *squares: float) -> tuple[int, np.ndarray]:
        """Takes a step along the gathered gradient, then rescales.

        Args:
          rescalings: changes of some weights after the step.
          *squares: what `gather` returned on each reducer. If their sum is not finite, no weight changes.

        Returns:
          The number of updates so far, and `Shard.weights`.
        """
        norm = math.sqrt(sum(squares))
        if not math.isfinite(norm):
            return self.updates(), self._weights
        self._total *= np.float32(clip_factor(norm, self._config.max_grad_norm, np))
        for place, gradient in zip(self._own.apart, self._apart, strict=True):
            self._total[place] = gradient
        weights = self._weights[0]
        for block in bounds(len(weights), -(-len(weights) // _BLOCK)):
            self._step(weights, block, np.float32(rate))
        self._updates += 1
        for rescaling in rescalings:
            rescaling.apply(self._weights)
        for average, share in zip(self._weights[1:], self._own.averages, strict=True):
            average += np.float32(share) * (weights - average)
        return self.updates(), self._weights

    def updates(self) -> int:
        """Number of updates so far."""
        return self._updates

    def shard(self) -> Shard:
        """The present state."""
        return Shard(self._weights, self._averages, self._updates)

    def _step(self, weights: np.ndarray, block: slice, rate: np.float32) -> None:
        state = [self._updates, *(average[block] for average in self._averages)]
        (stepped,), new = update(self._config, [weights[block]], [self._total[block]], state, rate, np)
        for place, factor in self._own.rates:
            part = within(place, block)
            stepped[part] = weights[block][part] + np.float32(factor) * (stepped[part] - weights[block][part])
        for array, value in zip((weights, *self._averages), (stepped, *new[1:]), strict=True):
            array[block] = value
