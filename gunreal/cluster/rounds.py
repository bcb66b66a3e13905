"""When a round of synchronous training ends (Chen et al. 2016, "Revisiting distributed synchronous SGD")."""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from gunreal.config.derived import rollouts_per_batch
from gunreal.config.objective import load_objective
from gunreal.config.schema import Config

_REMEMBERED = 256  # answers whose times set the deadline
_FEWEST = 8  # answers before there is a deadline
_TIMES, _GRACE = 2.0, 0.02  # the deadline is this multiple of the median time, plus these seconds


def answers_per_turn(config: Config) -> int:
    """Number of gradients for which a node uses one rollout of each of its agents.

    Agents of a group end their rollouts at the same time, and often other groups do, too. The first gradient then waits
    for all of them, and the next ones find their rollouts ready. Such a wait comes at least once per turn.
    """
    batches = -(-config.agents // rollouts_per_batch(config))
    uses = load_objective(config).uses()
    return batches * uses.epochs * uses.minibatches


class Round:
    """The clock of a run's rounds.

    Args:
      quorum: share of the nodes that ends a round. 1 waits for all, without a deadline.
      turn: number of answers of a node of which at least one waits for new rollouts. It takes longer than the others.
    """

    def __init__(self, quorum: float, turn: int = 1):
        self._quorum = quorum
        self._latest: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=turn))  # of each node
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self.began = 0.0

    def begin(self, now: float) -> None:
        """Begins the next round."""
        self.began = now

    def answered(self, slot: int, seconds: float) -> None:
        """Records how long the node in this slot took, in time or late."""
        self._latest[slot].append(seconds)
        self._seconds.append(max(self._latest[slot]))

    def deadline(self) -> float:
        """Seconds after which a round ends with any number of gradients.

        This is twice the median time of recent answers. The time of an answer is the longest time of its node over the
        last turn, so that a wait for new rollouts is in time, even if most answers do not have to wait.
        """
        if self._quorum == 1 or len(self._seconds) < _FEWEST:
            return math.inf
        return _TIMES * float(np.median(self._seconds)) + _GRACE

    def ends(self) -> float:
        """The time of the deadline."""
        return self.began + self.deadline()

    def is_over(self, now: float, gradients: int, awaited: int) -> bool:
        """Whether to take the step.

        Args:
          gradients: number of gradients that have arrived.
          awaited: number of nodes that still compute a gradient for this round.
        """
        if not gradients:
            return False
        return gradients >= math.ceil(self._quorum * (gradients + awaited) - 1e-9) or now >= self.ends()


def rate_factor(rule: str, nodes: int, step: int, warmup: int) -> float:
    """The factor of the learning rate for a batch of `nodes` times the size (Goyal et al. 2017, section 2.2).

    Args:
      rule: "off", "sqrt" or "linear".
      warmup: agent steps in which the factor grows linearly from 1.
    """
    full = {"off": 1.0, "sqrt": math.sqrt(nodes), "linear": float(nodes)}[rule]
    return 1.0 + (full - 1.0) * (min(step / warmup, 1.0) if warmup else 1.0)
