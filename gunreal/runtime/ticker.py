"""The regular work of a run: lines of metrics, checkpoints, evaluations, and the caller's callback."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gunreal.runtime.base import BaseSystem, Runner
from gunreal.runtime.evaluation import Evaluation

OnMetrics = Callable[[dict[str, Any]], Any]


class Ticker:
    """Writes metrics and checkpoints and starts evaluations when they are due.

    The first checkpoint of a run is due with its first line of metrics, once a step has been taken. A run that fails
    before leaves no folder.

    Args:
      system: the parts of the run.
      run: what moves these parts.
      display: the display, or None.
      on_metrics: function called with each line. If it returns True, the run saves a checkpoint and stops.
    """

    def __init__(self, system: BaseSystem, run: Runner, display: Any, on_metrics: OnMetrics | None = None):
        self._system, self._run, self._display, self._on_metrics = system, run, display, on_metrics
        self._measured = self._saved = time.monotonic()
        self._is_new = not system.resumed  # and has no checkpoint yet
        config = system.config
        self._evaluation = Evaluation(system) if config.eval_steps or config.eval_minutes else None

    def __call__(self) -> None:
        """Called about ten times a second."""
        now, config = time.monotonic(), self._system.config
        if self._evaluation:
            self._evaluation.tick()
        if now - self._measured >= config.metrics_seconds:
            self._measured = now
            line = self._system.writer.write(self._run.snapshot() | self._scores())
            if self._display:
                self._display.update(line)
            if self._on_metrics:
                answer = self._on_metrics(line)
                if isinstance(answer, bool | np.bool_) and answer:
                    self._system.stop("callback")
        wait = config.metrics_seconds if self._is_new else 60 * config.checkpoint_minutes
        if now - self._saved >= wait and self._system.metrics.step:
            self._saved, self._is_new = now, False
            self._run.save()

    def _scores(self) -> dict[str, Any]:
        return self._evaluation.take() if self._evaluation else {}

    def wait(self) -> None:
        """Ends the training time, and waits for evaluations at the end of the budget."""
        self._system.drain_episodes()
        self._system.metrics.stop_clock()
        if self._evaluation and not self._system.in_haste:
            self._run.save()  # the wait may be long
            self._evaluation.finish()

    def finish(self) -> None:
        """Writes the last line of metrics, and the same line before it for each further evaluation that has ended."""
        now, lines = self._run.snapshot(), []
        while self._evaluation and self._evaluation.left() > 1:
            lines.append(self._system.writer.write(now | self._scores()))
        lines.append(self._system.finish(now | self._scores()))
        for line in lines:
            if self._display:
                self._display.update(line)
            if self._on_metrics:
                self._on_metrics(line)

    def close(self) -> None:
        """Ends an evaluation that still runs."""
        if self._evaluation:
            self._evaluation.close()
