"""The learning curve that every system leaves: `metrics.jsonl`, with keys that gunreal's own runs have, too.

Each line is a JSON object: `step`, agent steps; `seconds` of training; `episodes` that have ended; `score_mean` and
`score_max` of the last 100, null before the first. The last line of a run that ended in order has `stopped_by`. Scores
are raw and of whole games. Imports the standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"
_WINDOW = 100  # episodes of a mean


class Curve:
    """Writes a run's curve while it is trained.

    Args:
      folder: of the run; it has to exist.
      steps: budget in agent steps.
      every: seconds between lines.

    Attributes:
      steps: the budget.
    """

    def __init__(self, folder: Path, steps: int, every: float = 5.0):
        self.folder, self.steps = folder, steps
        self._every, self._stopped_by = every, ""
        self._scores: deque[float] = deque(maxlen=_WINDOW)
        self._episodes = self._step = self._read = 0
        self._start = self._written = time.monotonic()
        self._file = open(folder / FILE, "w", buffering=1)  # noqa: SIM115

    @property
    def scores_file(self) -> Path:
        """Where other processes may append scores by `append_score`; they are read with the next report."""
        return self.folder / "scores.txt"

    def start(self) -> None:
        """Training starts now: what was imported and built before does not count."""
        self._start = self._written = time.monotonic()

    def episode(self, score: float) -> None:
        """A whole game has ended with this raw score."""
        self._scores.append(float(score))
        self._episodes += 1

    def report(self, step: int) -> bool:
        """Tells that so many agent steps are done; returns whether to go on."""
        self._step = step
        if time.monotonic() - self._written >= self._every:
            self._write()
        if step >= self.steps and not self._stopped_by:
            self._stopped_by = "steps"
        return not self._stopped_by

    def stop(self, reason: str) -> None:
        """The next report is to be the last."""
        self._stopped_by = self._stopped_by or reason

    def close(self) -> None:
        """Writes the last line."""
        self._write({"stopped_by": self._stopped_by or "error"})
        self._file.close()

    def _write(self, last: dict[str, Any] | None = None) -> None:
        self._written = time.monotonic()
        self._collect()
        line: dict[str, Any] = {"step": self._step, "seconds": round(self._written - self._start, 3)}
        line["episodes"] = self._episodes
        line["score_mean"] = sum(self._scores) / len(self._scores) if self._scores else None
        line["score_max"] = max(self._scores, default=None)
        self._file.write(json.dumps(line | (last or {})) + "\n")

    def _collect(self) -> None:
        """Takes over the scores that other processes have appended."""
        if not self.scores_file.exists():
            return
        with open(self.scores_file) as file:
            file.seek(self._read)
            whole = file.read().rpartition("\n")[0]
        self._read += len(whole) + 1 if whole else 0
        for score in whole.split():
            self.episode(float(score))


def append_score(file: str | Path, score: float) -> None:
    """Appends a score; any number of processes may do so at the same time."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{score:.10g}\n".encode())
    finally:
        os.close(descriptor)
