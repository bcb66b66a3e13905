"""The trained state of a cluster run: what a single machine's learner holds, divided among reducers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, RunningMoments
from gunreal.cluster.reducer import Shard
from gunreal.learning.learner import Learner

_UPDATES = "optimizer/updates"


class Model:
    """Translates between the state of a checkpoint, as `Learner.get_state`, flat slices, and a node's arrays.

    Attributes:
      version: number of updates so far.
      moments: the moments of observations and returns.
    """

    def __init__(self, state: Mapping[str, np.ndarray], limits: Mapping[str, Limits]):
        self._state = dict(state)
        self.version = int(state["version"])
        self._weights = self._flat("weights/")
        self._statistics = self._flat("statistics/")
        self.moments = RunningMoments(limits, self._statistics, self._weights, self._joined(self._statistics))
        self._averages = self._flat("optimizer/")  # of one kind after the other, each in the order of the weights

    def _flat(self, prefix: str) -> Flat:
        arrays = {name: array for name, array in self._state.items() if name.startswith(prefix) and name != _UPDATES}
        return Flat({name: array.shape for name, array in arrays.items()})

    def _joined(self, flat: Flat) -> np.ndarray:
        return flat.join(self._state[name] for name in flat.places)

    def check(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError if another node's network or optimizer has another shape. The message is one line."""
        Learner.check(state, {name: array for name, array in self._state.items() if name != "version"})

    @property
    def size(self) -> int:
        """Number of weights."""
        return self._weights.size

    def shard(self) -> Shard:
        """All weights and averages."""
        weights, averages = map(self._joined, (self._weights, self._averages))
        return Shard(weights, list(averages.reshape(-1, self.size)), int(self._state[_UPDATES]))

    def state(self, shard: Shard) -> dict[str, np.ndarray]:
        """The state of a checkpoint, with the weights and averages of all reducers."""
        found = self._weights.split(shard.weights) | self._statistics.split(self.moments.vector)
        found |= self._averages.split(np.concatenate(shard.averages))
        found[_UPDATES] = np.array(shard.updates, self._state[_UPDATES].dtype)
        return {name: found[name] for name in self._state if name != "version"} | {
            "version": np.array(self.version, np.int64)
        }

    def sha256(self, weights: np.ndarray) -> str:
        """Hash of weights and moments, equal to `Learner.weights_sha256` of a learner that has them."""
        return hashlib.sha256(weights.tobytes() + self.moments.vector.tobytes()).hexdigest()
