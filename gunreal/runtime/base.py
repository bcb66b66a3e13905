"""The base class of the systems of all runners: metrics, checkpoints, and the reason for the end of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gunreal.config.folders import command, remedy
from gunreal.config.schema import Config
from gunreal.config.warning import warn
from gunreal.records import checkpoint
from gunreal.records.lines import MetricsWriter
from gunreal.records.metrics import RunMetrics
from gunreal.records.tracker import open_tracker


class Runner(Protocol):
    """What moves the parts of a run. Device runs and clusters move their own."""

    def run(self, tick: Callable[[], None]) -> None:
        """Runs until the run is stopped. `tick` is called about ten times per second."""

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""

    def save(self) -> None:
        """Writes a checkpoint."""


class NotSaved(OSError):
    """The newest weights could not be written, so they are lost when the run ends."""


class BaseSystem:
    """The part of a system that is the same for all runners.

    Args:
      config: configuration of the run.
      metrics: the metrics that the run counts.
      run_dir: folder of the run. None writes nothing, which is for the nodes of a cluster.
      resumed: the checkpoint that the run goes on from.

    Attributes:
      stopped_by: reason for the end, empty while the run goes on.
      failure: the error that ended the run.
      not_saved: the error of the last checkpoint, or None if it was written.
    """

    def __init__(
        self, config: Config, metrics: RunMetrics, run_dir: Path | None, resumed: checkpoint.Checkpoint | None
    ):
        self.config, self.metrics, self.resumed = config, metrics, resumed
        self.in_haste = False  # whether a signal or an error ends the run
        self.stopped_by = ""  # not a threading.Event: in a signal handler the main thread may hold its lock
        self.failure: BaseException | None = None
        self.not_saved: NotSaved | None = None
        self._writes = run_dir is not None
        if run_dir is not None:
            self.run_dir = run_dir
            self.writer = MetricsWriter(run_dir, metrics.step, open_tracker(config, run_dir))

    def stop(self, reason: str) -> None:
        """Asks the run to end. The first reason is kept."""
        self.in_haste = self.in_haste or reason not in ("steps", "callback")
        self.stopped_by = self.stopped_by or reason

    def fail(self, error: BaseException) -> None:
        """Ends the run because of an error. The first error is kept."""
        self.failure = self.failure or error
        self.stop("error")

    def save_checkpoint(
        self, state: dict[str, np.ndarray], blobs: dict[str, bytes] | None = None, **extra: Any
    ) -> None:
        """Writes a checkpoint. If writing fails, a warning is printed and the run continues."""
        self.not_saved = None
        try:
            checkpoint.save(
                self.run_dir,
                self.metrics.step,
                state,
                {"metrics": self.metrics.state(), "config": dataclasses.asdict(self.config), **extra},
                blobs,
                score=self.metrics.score_mean(),
                keep=self.config.keep_checkpoints,
            )
        except OSError as error:
            warn(f"no checkpoint at step {self.metrics.step}: {error}; {remedy(self.run_dir, error)}")
            self.not_saved = NotSaved(f"the weights of step {self.metrics.step:,} could not be saved: {error}")

    def finish(self, line: dict[str, Any]) -> dict[str, Any]:
        """Writes the last line of metrics and returns it."""
        return self.writer.final(line, self.weights_sha256(), self.stopped_by)

    def ending(self) -> str:
        """One line about the end of the run and what can be done next."""
        if self.stopped_by == "steps":
            return f"finished; to play episodes, run: {command('evaluate', self.run_dir)}"
        return f"stopped at step {self.metrics.step:,}; to continue, run: {command('resume', self.run_dir)}"

    def state(self) -> dict[str, np.ndarray]:
        """Copies what is trained, see `Learner.get_state`."""
        raise NotImplementedError

    def weights_sha256(self) -> str:
        """Hash of the trained weights and moments, see `Learner.weights_sha256`."""
        raise NotImplementedError

    def drain_episodes(self) -> None:
        """Adds finished episodes to the metrics."""

    def close(self) -> None:
        """Closes the files of metrics and frees everything that the run holds."""
        if self._writes:
            self.writer.close()
