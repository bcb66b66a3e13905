"""Writes the metrics of a run: `metrics.jsonl` and the event file of TensorBoard."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.config import files
from gunreal.config.folders import writing
from gunreal.config.warning import warn
from gunreal.records.metrics import FILE, read
from gunreal.records.tensorboard import EventFile
from gunreal.records.tracker import Tracker


class MetricsWriter:
    """Appends to `metrics.jsonl` and to the TensorBoard event file of a run.

    A failed write, for example on a full disk, never stops a run. The first failure prints a warning on stderr, and
    writing is tried again with the next line. Lines are never written partially.

    Args:
      step: step at which the run starts or resumes. Lines of later steps are removed, because the run will take these
        steps again, and so is what the last line says about the end of the run. That line is marked as "resumed".

    Raises:
      ConfigError: at the start, `metrics.jsonl` is not writable or is damaged.
    """

    def __init__(self, run_dir: str | Path, step: int = 0, tracker: Tracker | None = None):
        self._run_dir = Path(run_dir)
        path = self._run_dir / FILE
        with writing(self._run_dir):
            if path.exists():
                _rewind(path, step)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._sinks: list[EventFile | Tracker] = [EventFile(self._run_dir, step), *([tracker] if tracker else [])]
        self._warned = False

    def write(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Appends one line, writes its numbers to TensorBoard and to the tracker, and returns it as it was written."""
        line = {name: finite(value) for name, value in line.items()}
        self._try(self._append, json.dumps(line))
        for sink in self._sinks:
            self._try(sink.add, line)
        return line

    def close(self) -> None:
        """Closes the files and the tracker."""
        for sink in self._sinks:
            self._try(sink.close)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self, action: Any, *args: Any) -> None:
        try:
            action(*args)
        except OSError as error:
            if not self._warned:
                self._warned = True
                fix = "free some space or make it writable; training continues and writing will be retried"
                warn(f"cannot write metrics to {self._run_dir}: {error.strerror or error}; {fix}")

    def _append(self, text: str) -> None:
        size = os.fstat(self._fd).st_size
        data = (text + "\n").encode()
        try:
            if os.write(self._fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, size)
            raise


def _rewind(path: Path, step: int) -> None:
    kept = [line for line in read(path) if line["step"] <= step]
    for line in kept:
        line.pop("stopped_by", None)  # the run goes on
    if kept and step:
        kept[-1]["resumed"] = True
    files.replace(path, "".join(json.dumps(line) + "\n" for line in kept))


def finite(value: Any) -> Any:
    """Converts `value` for JSON: NumPy scalars to numbers, NaN and infinities to None."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
