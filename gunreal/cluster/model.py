"""The trained state of a cluster run: what a single machine's learner holds, divided among reducers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gunreal.cluster.flat import Flat
from gunreal.cluster.moments import Limits, Untrained
from gunreal.cluster.reducer import Own, Shard
from gunreal.learning.learner import Learner

_UPDATES = "optimizer/updates"


class Rules(NamedTuple):
    """What a learner does in an update besides the step of its optimizer.

    Attributes:
      limits: limits of the running moments, by name.
      averages: rates of the moving averages, by task.
      apart: names of the weights whose gradients are clipped apart.
      rates: factors of the learning rate, by the names of the weights.
    """

    limits: dict[str, Limits]
    averages: dict[str, float]
    apart: list[str]
    rates: dict[str, float]

    @classmethod
    def of(cls, learner: Learner) -> Rules:
        """Those of a learner."""
        network, steps = learner.network, learner.steps
        names = [f"weights/{name}" for name in network.names]
        return cls(
            {name: Limits(found.least, found.most) for name, found in network.statistics.items()},
            {task.name: task.average for task in network.tasks if task.average},
            [names[place] for place in sorted(steps.apart)],
            {names[place]: rate for place, rate in steps.rates.items()},
        )


class Rows:
    """The weights and their moving averages as the rows of one array.

    A moving average is one of the torso and of one head. The rest of its row has averages that nobody uses.
    """

    def __init__(self, state: Mapping[str, np.ndarray], averages: Iterable[str]):
        """`state` is `Learner.get_state`, and `averages` are the names of tasks."""
        weights = {name: array.shape for name, array in state.items() if name.startswith("weights/")}
        self.weights = Flat(weights)
        prefixes = ["weights/", *(f"average/{task}/" for task in averages)]
        self._names = [  # of each row, by the names of the weights
            {name: own for name in weights if (own := name.replace("weights/", prefix, 1)) in state}
            for prefix in prefixes
        ]

    def join(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """The rows, float32 `[rows, n]`."""
        return np.stack(
            [self.weights.join(state[names.get(x, x)] for x in self.weights.places) for names in self._names]
        )

    def split(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Weights and averages by the names of `Learner.get_state`."""
        found: dict[str, np.ndarray] = {}
        for names, row in zip(self._names, rows, strict=True):
            arrays = self.weights.split(row)
            found |= {own: arrays[name] for name, own in names.items()}
        return found


class Model:
    """Translates between the state of a checkpoint, as `Learner.get_state`, flat slices, and a node's arrays.

    Attributes:
      version: number of updates so far.
      untrained: running moments, and the states of tasks.
      own: how the steps of some weights differ.
    """

    def __init__(self, state: Mapping[str, np.ndarray], rules: Rules):
        self._state = dict(state)
        self.version = int(state["version"])
        self._rows = Rows(state, rules.averages)
        places = self._rows.weights.places
        shared = {name: array for name, array in state.items() if name.startswith(("statistics/", "state/"))}
        self.untrained = Untrained(rules.limits, self._rows.weights, shared)
        rates = [(places[name], rate) for name, rate in rules.rates.items()]
        self.own = Own(list(rules.averages.values()), [places[name] for name in rules.apart], rates)
        of_optimizer = {n: x.shape for n, x in state.items() if n.startswith("optimizer/") and n != _UPDATES}
        self._averages = Flat(of_optimizer)  # of one kind after the other, each in the order of the weights

    def check(self, state: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError if another node's network or optimizer has another shape. The message is one line."""
        Learner.check(state, {name: array for name, array in self._state.items() if name != "version"})

    @property
    def size(self) -> int:
        """Number of weights."""
        return self._rows.weights.size

    def shard(self) -> Shard:
        """All weights and averages."""
        averages = self._averages.join(self._state[name] for name in self._averages.places).reshape(-1, self.size)
        return Shard(self._rows.join(self._state), list(averages), int(self._state[_UPDATES]))

    def state(self, shard: Shard) -> dict[str, np.ndarray]:
        """The state of a checkpoint, with the weights and averages of all reducers."""
        found = self._rows.split(shard.weights) | self.untrained.arrays
        found |= self._averages.split(np.concatenate(shard.averages))
        found[_UPDATES] = np.array(shard.updates, self._state[_UPDATES].dtype)
        found["version"] = np.array(self.version, np.int64)
        return {name: found[name] for name in self._state}
