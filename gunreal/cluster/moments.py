"""Running moments over all nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.reducer import Rescaling
from gunreal.learning.normalizer import Moments, merge

_VALUE_LAYER = ("value/kernel", "value/bias")


class Limits(NamedTuple):
    """The limits of one `learning.normalizer.Statistics`."""

    least: float
    most: float


class RunningMoments:
    """The moments of observations and returns that all nodes have seen.

    Args:
      limits: limits by name of the statistics.
      layout: places of "statistics/<name>/<part>" in a vector.
      weights: places of the weights in the vector of all weights.

    Attributes:
      vector: the present moments, float32.
    """

    def __init__(self, limits: Mapping[str, Limits], layout: Flat, weights: Flat, vector: np.ndarray):
        self._limits, self._layout, self.vector = dict(limits), layout, vector
        self._value = [weights.places[f"weights/{name}"] for name in _VALUE_LAYER if "return" in limits]

    def _of(self, vector: np.ndarray, name: str) -> Moments:
        arrays = self._layout.split(vector)
        return Moments(*(arrays[f"statistics/{name}/{part}"] for part in Moments._fields))

    def absorb(self, found: Sequence[np.ndarray]) -> list[Rescaling]:
        """Adds the moments of a round's batches, one vector of each node.

        Returns:
          How the value layer changes, so that its predictions do not, in places of all weights.
        """
        rescalings: list[Rescaling] = []
        arrays: list[np.ndarray] = []
        for name, limits in self._limits.items():
            known, batch = self._of(self.vector, name), self._of(found[0], name)
            for vector in found[1:]:
                batch = merge(batch, self._of(vector, name), math.inf, np)
            new = merge(known, batch, limits.most, np)
            arrays += new
            if name == "return":
                kernel, bias = self._value
                rescalings.append(Rescaling(kernel, bias, known, new, limits.least))
        self.vector = self._layout.join(arrays)
        return rescalings
