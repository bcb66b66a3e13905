"""What gradients do not train and all nodes share: running moments, and the states of tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.reducer import Rescaling
from gunreal.learning.normalizer import Moments, merge

Arrays = Mapping[str, np.ndarray]
_VALUE_LAYERS = {"return": "value", "bonus_return": "bonus_value"}


class Limits(NamedTuple):
    """The limits of one `learning.normalizer.Statistics`."""

    least: float
    most: float


class Untrained:
    """The arrays that all nodes share, by the names of `Network.untrained`.

    Args:
      limits: limits by name of the statistics.
      weights: places of the weights in the vector of all weights.

    Attributes:
      arrays: "statistics/<name>/<part>" and "state/<task>/<name>".
    """

    def __init__(self, limits: Mapping[str, Limits], weights: Flat, arrays: Arrays):
        self._limits, self._weights, self.arrays = dict(limits), weights, dict(arrays)
        self._changing = {name for name in arrays if name.startswith("statistics/")}

    def changing(self) -> dict[str, np.ndarray]:
        """The arrays that some gradient has changed. The others are as every node has first been told."""
        return {name: array for name, array in self.arrays.items() if name in self._changing}

    def absorb(self, found: Sequence[Arrays]) -> list[Rescaling]:
        """Adds what a round's batches say: the moments of each, and the differences that they make to states.

        Returns:
          How the layers of values change, so that their predictions do not, in places of all weights.
        """
        rescalings: list[Rescaling] = []
        arrays = dict(self.arrays)
        for name, limits in self._limits.items():
            known, batch = _moments(self.arrays, name), _moments(found[0], name)
            for each in found[1:]:
                batch = merge(batch, _moments(each, name), math.inf, np)
            new = merge(known, batch, limits.most, np)
            arrays |= named(name, new)
            if layer := _VALUE_LAYERS.get(name):
                kernel, bias = (self._weights.places[f"weights/{layer}/{part}"] for part in ("kernel", "bias"))
                rescalings.append(Rescaling(kernel, bias, known, new, limits.least))
        states = {name for each in found for name in each if name.startswith("state/")}
        for name in states:
            arrays[name] = _moved(self.arrays[name], [each[name] for each in found if name in each])
        self._changing |= states
        self.arrays = arrays
        return rescalings


def named(name: str, found: Moments) -> dict[str, np.ndarray]:
    """The parts of the moments `name`, float32, by the names of `Network.untrained`."""
    return {f"statistics/{name}/{part}": np.asarray(x, np.float32) for part, x in found._asdict().items()}


def _moments(arrays: Arrays, name: str) -> Moments:
    return Moments(*(arrays[f"statistics/{name}/{part}"] for part in Moments._fields))


def _moved(known: np.ndarray, differences: Sequence[np.ndarray]) -> np.ndarray:
    """`known` with the mean of some differences, rounded if it has integers or booleans."""
    new = known + np.mean(differences, axis=0, dtype=np.float64)
    return np.asarray(new if known.dtype.kind == "f" else np.rint(new), known.dtype)
