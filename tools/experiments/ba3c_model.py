"""A cost model of synchronous rounds: compute times, links of limited bandwidth, and a fixed overhead."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from cluster_rounds import BATCH, SPREAD

from experiments.ba3c import Condition

_BYTES = {"float32": 4, "bfloat16": 2}
_ROUNDS = 2000  # simulated rounds
_EFFICIENCIES = np.linspace(0.3, 1.0, 36)
_TIMES, _GRACE = 2.0, 0.02  # the deadline of `gunreal.cluster.rounds`


class Costs(NamedTuple):
    """What is fitted to measurements.

    Attributes:
      fixed: seconds of a round that do not depend on anything.
      each: seconds for each node.
      message: seconds for each further slice of a node's weights, which goes to a reducer of its own.
      efficiency: share of the bandwidth that is used.
    """

    fixed: float
    each: float
    message: float
    efficiency: float


class Stragglers(NamedTuple):
    """Gradients that take `times` as long, with some probability."""

    share: float = 0.0
    times: float = 1.0


@dataclasses.dataclass(frozen=True)
class Round:
    """The means of simulated rounds.

    Attributes:
      seconds: time of a round.
      gradients: number of gradients in it.
    """

    seconds: float
    gradients: float

    @property
    def rate(self) -> float:
        """Data points per second."""
        return self.gradients * BATCH / self.seconds


NO_STRAGGLERS = Stragglers()


def simulate(
    condition: Condition,
    costs: Costs,
    stragglers: Stragglers = NO_STRAGGLERS,
    quorum: float = 0.9,
    shared: bool = True,
) -> Round:
    """Simulates rounds.

    The times of gradients are lognormal. Each node sends its gradient over its own link, and the link of a reducer
    takes one gradient after the other. Then all reducers send the weights to all nodes.

    Args:
      condition: what is simulated.
      costs: the fitted costs.
      stragglers: gradients that take longer.
      quorum: share of the nodes that ends a round.
      shared: whether all nodes share the cores of one machine, as in the measurements. Otherwise each has as many, and
        they handle their slices at the same time.
    """
    nodes, rng = condition.nodes, np.random.default_rng(0)
    computing = condition.compute * rng.lognormal(0, SPREAD, (_ROUNDS, nodes))
    computing *= np.where(rng.random(computing.shape) < stragglers.share, stragglers.times, 1.0)
    if condition.slow > 1:
        computing = computing[:, 1:]  # one that is always late is not waited for
    computing.sort(axis=1)
    count = math.ceil(quorum * computing.shape[1] - 1e-9)
    end = computing[:, count - 1]
    if quorum < 1:
        deadline = _TIMES * float(np.median(computing)) + _GRACE
        end = np.maximum(np.minimum(end, deadline), computing[:, 0])
    gradient, weights = _transfers(condition, costs)
    reducer = gradient / condition.reducers * (1 - 1 / nodes)  # one of the nodes is on the reducer's machine
    done = np.zeros(_ROUNDS)
    used = np.zeros(_ROUNDS)
    for place in range(count):
        there = computing[:, place] <= end
        done = np.where(there, np.maximum(done + reducer, computing[:, place] + gradient), done)
        used += there
    out = max((nodes - 1) * weights / condition.reducers, weights) if nodes > 1 else 0.0
    slices = costs.message * (condition.reducers - 1) * (nodes if shared else 1)
    seconds = np.maximum(done, end) + out + costs.fixed + costs.each * nodes + slices
    return Round(float(seconds.mean()), float(used.mean()))


def _transfers(condition: Condition, costs: Costs) -> tuple[float, float]:
    """Seconds for the gradient of a node and for its weights, on one link."""
    if not condition.mbit or condition.nodes == 1:
        return 0.0, 0.0
    each = 8 * condition.weights / (condition.mbit * 1e6 * costs.efficiency)
    return _BYTES[condition.dtype] * each, 4 * each


def fit(rows: Sequence[Mapping[str, Any]]) -> Costs:
    """The costs of at least 0 with the least squared relative error of the measured rounds.

    Args:
      rows: measurements, as saved by `ba3c.measure`.
    """
    conditions = [Condition(**row["condition"]) for row in rows]
    measured = np.array([row["round_ms"] / 1000 for row in rows])
    factors = np.array([[1.0, c.nodes, c.nodes * (c.reducers - 1)] for c in conditions]) / measured[:, None]
    best, least = Costs(0.0, 0.0, 0.0, 1.0), math.inf
    for efficiency in _EFFICIENCIES:
        free = Costs(0.0, 0.0, 0.0, float(efficiency))
        rest = 1 - np.array([simulate(condition, free).seconds for condition in conditions]) / measured
        for used in itertools.product((0.0, 1.0), repeat=3):  # of the three costs
            found = np.linalg.lstsq(factors * used, rest, rcond=None)[0]
            error = float(np.square(rest - factors @ found).sum())
            if error < least and min(found) >= 0:
                best, least = Costs(*map(float, found), float(efficiency)), error
    return best
