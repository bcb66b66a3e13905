"""Passes the gradients of a node's trainers to the reducers, one for each version of the weights."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.compression import Packer
from gunreal.cluster.model import Rows
from gunreal.cluster.moments import named
from gunreal.config.derived import Rates
from gunreal.learning.learner import Learner
from gunreal.learning.normalizer import Moments


class Left(Exception):
    """The node leaves the training."""


class Contribution(NamedTuple):
    """What one batch of a node adds to a round.

    Attributes:
      gradient: flat gradient, float32 or packed. None if it is not finite.
      untrained: what the batch says about the arrays of `cluster.moments.Untrained`.
      size: number of agent steps in the batch.
      seconds: time from the arrival of the weights to the gradient.
    """

    gradient: np.ndarray | None
    untrained: dict[str, np.ndarray]
    size: int
    seconds: float


class Exchange:
    """Replaces the learner in `runtime.trainer.Trainer`. It computes gradients, but the reducers take the steps."""

    def __init__(self, learner: Learner, rows: Rows, dtype: str):
        self._learner, self._rows = learner, rows
        self._untrained: dict[str, np.ndarray] = {}
        self._rates: Rates | None = None
        self._packer = Packer(dtype)
        self._asked: queue.Queue[float | None] = queue.Queue()
        self._given: queue.Queue[Contribution] = queue.Queue()
        self._left = threading.Event()

    @property
    def version(self) -> int:
        """Number of updates applied to the weights."""
        return self._learner.version

    def assign(
        self, slices: Sequence[np.ndarray], untrained: Mapping[str, np.ndarray], version: int, now: Rates
    ) -> None:
        """Sets the weights with their averages, given in slices, and the rates of the whole run.

        `untrained` has those arrays of `cluster.moments.Untrained` that may have changed since the last call, and in
        the first call all of them.
        """
        self._rates = now
        self._untrained |= untrained
        self._learner.assign(self._rows.split(np.concatenate(slices, axis=1)) | self._untrained, version)

    def ask(self) -> Contribution:
        """Lets one trainer compute a gradient with the present weights, and waits for it.

        Raises:
          Left: the node leaves.
        """
        self._asked.put(time.monotonic())
        while not self._left.is_set():
            try:
                return self._given.get(timeout=0.5)
            except queue.Empty:
                continue
        raise Left

    def train(self, batch: Mapping[str, Any], learning_rate: float, entropy: float, progress: float) -> dict[str, Any]:
        """Waits for `ask` and computes a gradient with the newest weights. `Learner.train` describes the arguments.

        The rates are those of a run without an end, so they are ignored.

        Raises:
          Left: the node leaves.
        """
        since = self._next()
        version, now = self._learner.version, self._rates
        assert now is not None  # they come with the weights
        gradient = self._learner.gradient(batch, now.entropy, now.progress)
        flat = None if gradient.metrics["skipped"] else self._packer.pack(self._rows.weights.join(gradient.values))
        size = batch["base"]["mask"].size
        self._given.put(Contribution(flat, self._said(gradient.moments), size, time.monotonic() - since))
        return {**gradient.metrics, "version": version}

    def _said(self, moments: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """`Gradient.moments` as moments of the batch, and as the differences that it makes to states."""
        found: dict[str, np.ndarray] = {}
        for name, new in moments.items():
            if isinstance(new, Moments):
                found |= named(name, new)
            else:
                difference = np.asarray(new, np.float64) - self._untrained[name]
                found[name] = np.asarray(difference, np.float32)
        return found

    def recall(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The present outputs for a batch."""
        return self._learner.recall(batch)

    def warm_up(self, batch: Mapping[str, Any]) -> None:
        """Compiles a gradient. Weights may arrive meanwhile."""
        self._learner.gradient(batch)

    def ready(self) -> None:
        """Waits for the weights after the last gradient. Raises Left if the node leaves."""
        self._asked.put(self._next())

    def _next(self) -> float:
        """Waits for `ask`, and returns when it was called. Raises Left if the node leaves."""
        since = self._asked.get()
        if since is None:
            self._asked.put(None)  # for the next trainer
            raise Left
        return since

    def hold(self) -> None:
        """Lets predictions use the weights after the last gradient until the next call. Raises as `ready`."""
        self.ready()
        self._learner.hold()

    def leave(self) -> None:
        """Ends all waits."""
        self._left.set()
        self._asked.put(None)
