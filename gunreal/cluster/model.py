"""The trained state of a cluster run: what a single machine's learner holds, divided among reducers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, RunningMoments
from gunreal.cluster.reducer import Shard
from gunreal.learning.learner import Learner

_UPDATES = "optimizer/000"  # Keras counts the updates in the first variable of every optimizer


class Model:
    """Translates between the state of a checkpoint, flat slices, and a node's arrays.

    Args:
      state: `Learner.get_state` of a node or of a checkpoint.
      limits: limits of the moments.

    Attributes:
      version: number of updates so far.
      moments: the moments of observations and returns.
    """

    def __init__(self, state: Mapping[str, np.ndarray], limits: Mapping[str, Limits]):
        self._state = dict(state)
        self.version = int(state["version"])
        self._weights = self._flat("weights/")
        statistics = self._flat("statistics/")
        vector = statistics.join(state[name] for name in statistics.places)
        self.moments = RunningMoments(limits, statistics, self._weights, vector)
        self._statistics = statistics
        self._slots = [name for name in state if name.startswith("optimizer/") and name != _UPDATES]

    def _flat(self, prefix: str) -> Flat:
        return Flat({name: array.shape for name, array in self._state.items() if name.startswith(prefix)})

    def check(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError if another node's network or optimizer has another shape. The message is one line."""
        Learner.check(state, {name: array for name, array in self._state.items() if name != "version"})

    @property
    def size(self) -> int:
        """Number of weights."""
        return self._weights.size

    def shard(self) -> Shard:
        """All weights and averages."""
        averages = self._weights.slots([self._state[name] for name in self._slots])
        weights = self._weights.join(self._state[name] for name in self._weights.places)
        return Shard(weights, averages, int(self._state[_UPDATES]))

    def state(self, shard: Shard) -> dict[str, np.ndarray]:
        """The state of a checkpoint, with the weights and averages of all reducers."""
        like = [self._state[name] for name in self._slots]
        slots = dict(zip(self._slots, self._weights.unslotted(shard.slots, like), strict=True))
        updates = {_UPDATES: np.array(shard.updates, self._state[_UPDATES].dtype)}
        found = self._weights.split(shard.weights) | self._statistics.split(self.moments.vector) | updates | slots
        return {name: found[name] for name in self._state if name != "version"} | {
            "version": np.array(self.version, np.int64)
        }

    def sha256(self, weights: np.ndarray) -> str:
        """Hash of weights and moments, equal to `Learner.weights_sha256` of a learner that has them."""
        return hashlib.sha256(weights.tobytes() + self.moments.vector.tobytes()).hexdigest()
