"""Writes the learning curve of any system as `metrics.jsonl`, with the same keys as gunreal's own runs.

Each line is a JSON object with the keys

- `step`, the agent steps so far,
- `seconds`, the training time so far,
- `episodes`, the number of ended episodes,
- `score_mean` and `score_max` of the last 100 episodes, null before the first one,
- `stopped_by`, only in the last line of a run that ended properly.

Scores are raw scores of whole games. This module imports the standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"
_WINDOW = 100  # episodes over which scores are averaged


class Curve:
    """Writes the learning curve of a run during training.

    Args:
      folder: folder of the run, which must exist.
      steps: length of the run in agent steps.
      every: seconds between lines.

    Attributes:
      folder: folder of the run.
      steps: length of the run in agent steps.
    """

    def __init__(self, folder: Path, steps: int, every: float = 5.0):
        self.folder, self.steps = folder, steps
        self._every, self._stopped_by = every, ""
        self._scores: deque[float] = deque(maxlen=_WINDOW)
        self._episodes = self._step = self._read = 0
        self._start = self._written = time.monotonic()
        self._file = open(folder / FILE, "w", buffering=1)  # noqa: SIM115
        self.scores_file.unlink(missing_ok=True)  # of an earlier run

    @property
    def scores_file(self) -> Path:
        """The file to which other processes may append scores with `append_score`."""
        return self.folder / "scores.txt"

    def start(self) -> None:
        """Starts the clock, after imports and the construction of environments and network."""
        self._start = self._written = time.monotonic()

    def episode(self, score: float) -> None:
        """Records the raw score of a whole game."""
        self._scores.append(float(score))
        self._episodes += 1

    def report(self, step: int) -> bool:
        """Records the number of agent steps so far. Returns whether to continue."""
        self._step = step
        if time.monotonic() - self._written >= self._every:
            self._write()
        if step >= self.steps and not self._stopped_by:
            self._stopped_by = "steps"
        return not self._stopped_by

    def stop(self, reason: str) -> None:
        """Makes the next report the last one."""
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
        """Reads the scores that other processes have appended."""
        if not self.scores_file.exists():
            return
        with open(self.scores_file) as file:
            file.seek(self._read)
            whole = file.read().rpartition("\n")[0]
        self._read += len(whole) + 1 if whole else 0
        for score in whole.split():
            self.episode(float(score))


def append_score(file: str | Path, score: float) -> None:
    """Appends a score to a file. Several processes may do so at the same time."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{score:.10g}\n".encode())
    finally:
        os.close(descriptor)
