"""A run that trains: it owns the folder, metrics, checkpoints and evaluations, and has a runner."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.config import folders
from gunreal.config.resolve import chosen
from gunreal.config.schema import Config
from gunreal.config.warning import warn
from gunreal.records import checkpoint
from gunreal.records.display import Display
from gunreal.records.lines import MetricsWriter
from gunreal.records.tracker import Tracker
from gunreal.runtime.base import Runner
from gunreal.runtime.evaluation import Evaluation

OnMetrics = Callable[[dict[str, Any]], Any]


class NotSaved(OSError):
    """The newest weights could not be written, so they are lost when the run ends."""


class Training:
    """Opens the files of metrics in the folder of a run.

    Args:
      given: configuration to save, in which settings of the machine are as they were given.
      on_metrics: function called with each line. If it returns True, the run saves a checkpoint and stops.

    Raises:
      ConfigError: the folder or a tracker cannot be used.
    """

    def __init__(
        self, given: Config, runner: Runner, run_dir: Path, show: bool = False, on_metrics: OnMetrics | None = None
    ):
        self.runner, self.status, self.run_dir = runner, runner.status, run_dir
        self._show, self._on_metrics = show, on_metrics
        self._given, self._used = given, self.status.config
        self._not_saved: NotSaved | None = None  # the error of the last checkpoint
        self._display: Display | None = None
        self._evaluation: Evaluation | None = None
        tracker = Tracker(self._used, run_dir) if self._used.track == "wandb" else None
        self._writer = MetricsWriter(run_dir, self.status.metrics.step, tracker)

    def run(self) -> None:
        """Trains until the run is stopped, and closes everything. Raises the error that has ended it."""
        status, saves = self.status, True
        with Display(status.config) if self._show else contextlib.nullcontext() as self._display:
            try:
                if self._display:
                    self._display.message(f"training in {folders.short(self.run_dir)}")
                if status.config.eval_steps or status.config.eval_minutes:
                    self._evaluation = Evaluation(self.runner, self.run_dir)
                self._measured = self._saved = time.monotonic()
                self._is_new = not status.resumed  # and has no checkpoint yet
                self.runner.run(self._tick)
                self._wait()
            except BaseException as error:
                saves = not (isinstance(error, KeyboardInterrupt) and status.in_haste)  # not at a second signal
                status.fail(error)
            self._end(saves)
            if self._display and not status.failure:
                self._display.message(self._ending())
        if status.failure:
            raise status.failure

    def _tick(self) -> None:
        """Writes metrics and checkpoints and starts evaluations when they are due.

        The first checkpoint of a run is due with its first line of metrics, once a step has been taken. A run that
        fails before leaves no folder.
        """
        now, config = time.monotonic(), self.status.config
        if self._evaluation:
            self._evaluation.tick()
        if now - self._measured >= config.metrics_seconds:
            self._measured = now
            answer = self._report(self._writer.write(self.runner.snapshot() | self._scores()))
            if isinstance(answer, bool | np.bool_) and answer:
                self.status.stop("callback")
        wait = config.metrics_seconds if self._is_new else 60 * config.checkpoint_minutes
        if now - self._saved >= wait and self.status.metrics.step:
            self._saved, self._is_new = now, False
            self.save()

    def _report(self, line: dict[str, Any]) -> Any:
        if self._display:
            self._display.update(line)
        return self._on_metrics(line) if self._on_metrics else None

    def _scores(self) -> dict[str, Any]:
        return self._evaluation.take() if self._evaluation else {}

    def _wait(self) -> None:
        """Ends the training time, and waits for evaluations at the end of the budget."""
        self.runner.drain_episodes()
        self.status.metrics.stop_clock()
        if self._evaluation and not self.status.in_haste:
            self.save()  # the wait may be long
            self._evaluation.finish()

    def save(self) -> None:
        """Writes a checkpoint. If writing fails, a warning is printed and the run continues.

        One from which the run cannot go on as if it had not been stopped is written only if there is no other.
        """
        found, metrics, config = self.runner.contents(), self.status.metrics, self.status.config
        if found is None or not (found.goes_on or not checkpoint.exists(self.run_dir)):
            return
        self._not_saved = None
        try:
            if config is not self._used:  # a cluster chooses some settings when its machines are known
                folders.save_config(self._given, self.run_dir, chosen(self._given, config))
                self._used = config
            checkpoint.save(
                self.run_dir,
                metrics.step,
                found.state,
                {"metrics": metrics.state(), "config": dataclasses.asdict(config), **found.extra},
                found.blobs,
                score=metrics.score_mean(),
                keep=config.keep_checkpoints,
            )
        except OSError as error:
            warn(f"no checkpoint at step {metrics.step}: {error}; {folders.remedy(self.run_dir, error)}")
            self._not_saved = NotSaved(f"the weights of step {metrics.step:,} could not be saved: {error}")

    def _end(self, saves: bool) -> None:
        """Writes a checkpoint and the last line of metrics, if the run `saves` any more, and frees everything."""
        status = self.status
        try:
            if saves and (status.metrics.step or not status.failure):
                self.runner.drain_episodes()
                self.save()
                self._finish()
                if self._not_saved:
                    status.fail(self._not_saved)
        except BaseException as error:
            status.fail(error)
        finally:
            with contextlib.closing(self):  # no process may stay
                if self._evaluation:
                    self._evaluation.close()

    def _finish(self) -> None:
        """Writes the last line of metrics, and the same line before it for each further evaluation that has ended."""
        now, lines = self.runner.snapshot(), []
        while self._evaluation and self._evaluation.left() > 1:
            lines.append(self._writer.write(now | self._scores()))
        stopped_by = "error" if self._not_saved else self.status.stopped_by
        end = {"weights_sha256": checkpoint.weights_sha256(self.runner.state()), "stopped_by": stopped_by}
        lines.append(self._writer.write(now | self._scores() | end))
        for line in lines:
            self._report(line)

    def _ending(self) -> str:
        """One line about the end of the run and what can be done next."""
        if self.status.stopped_by == "steps":
            return f"finished; to play episodes, run: {folders.command('evaluate', self.run_dir)}"
        step = self.status.metrics.step
        return f"stopped at step {step:,}; to continue, run: {folders.command('resume', self.run_dir)}"

    def close(self) -> None:
        """Frees everything that the run holds."""
        try:
            self.runner.close()
        finally:
            self._writer.close()  # last, because a tracker may wait for its network
