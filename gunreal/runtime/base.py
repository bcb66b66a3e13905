"""What all runners have in common: the state of a run, and what a run asks of the runner that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from gunreal.config.schema import Config
from gunreal.records import checkpoint
from gunreal.records.metrics import RunMetrics


class Status:
    """How far a run is, and why it ends.

    Attributes:
      stopped_by: reason for the end, empty while the run goes on.
      in_haste: whether a signal or an error ends the run.
      failure: the error that ended the run.
    """

    def __init__(self, config: Config, metrics: RunMetrics, resumed: checkpoint.Checkpoint | None):
        self.config, self.metrics, self.resumed = config, metrics, resumed
        self.in_haste = False
        self.stopped_by = ""  # not a threading.Event: in a signal handler the main thread may hold its lock
        self.failure: BaseException | None = None

    @property
    def status(self) -> Self:
        """The status itself, for a runner that is one."""
        return self

    def stop(self, reason: str) -> None:
        """Asks the run to end. The first reason is kept."""
        self.in_haste = self.in_haste or reason not in ("steps", "callback")
        self.stopped_by = self.stopped_by or reason

    def fail(self, error: BaseException) -> None:
        """Ends the run because of an error. The first error is kept."""
        self.failure = self.failure or error
        self.stop("error")


class Contents(NamedTuple):
    """What a checkpoint contains besides metrics and configuration.

    Attributes:
      state: arrays by name, those of `Runner.state` among them.
      extra: further values for the metadata, which JSON can hold.
      goes_on: whether the run can go on from it as if it had not been stopped.
    """

    state: dict[str, np.ndarray]
    blobs: Mapping[str, bytes] = {}
    extra: Mapping[str, Any] = {}
    goes_on: bool = True


class Runner(Protocol):
    """What acts and learns: one class for each value of `runner`."""

    @property
    def status(self) -> Status:
        """The state of the run."""

    def run(self, tick: Callable[[], None]) -> None:
        """Runs until `status` is stopped. `tick` is called about ten times per second."""

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""

    def state(self) -> dict[str, np.ndarray]:
        """Copies what is trained, see `Learner.get_state`."""

    def contents(self) -> Contents | None:
        """What a checkpoint contains. None if there is nothing to save yet."""

    def drain_episodes(self) -> None:
        """Adds finished episodes to the metrics."""

    def close(self) -> None:
        """Frees everything that the runner holds."""
