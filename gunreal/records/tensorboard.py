"""The TensorBoard event file of a run, written without TensorFlow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog

_GROUPS = ("batch", "eval", "loss", "memory", "policy", "queue", "score")


class EventFile:
    """Writes the numbers of metrics lines as scalars. A method that raises OSError may be called again later.

    The class uses tensorboardX's synchronous writer. The threaded one would block the run after a full disk has ended
    its thread.

    Args:
      folder: folder of the run. The file is created there with the first line.
      step: step at which the run starts or resumes. TensorBoard then ignores later steps of earlier files.
    """

    def __init__(self, folder: Path, step: int = 0):
        self._folder, self._step = folder, step
        self._goes_on = step > 0 or any(folder.glob("events*"))
        self._writer: EventsWriter | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Writes the numbers of one line at `line["step"]`, and those of an evaluation at the step of its weights."""
        if self._writer is None:
            self._writer = self._open()
        evaluated = {name: value for name, value in line.items() if name.startswith("eval_")}
        _write(self._writer, "step", {name: value for name, value in line.items() if name not in evaluated})
        if evaluated.get("eval_step") is not None:
            _write(self._writer, "eval_step", evaluated)
        self._writer.flush()

    def _open(self) -> EventsWriter:
        writer = EventsWriter(str(self._folder / "events"), f".{os.getpid()}")
        if self._goes_on:
            self._goes_on = False
            start = SessionLog(status=SessionLog.START)
            writer.write_event(Event(wall_time=time.time(), step=self._step + 1, session_log=start))
        return writer

    def close(self) -> None:
        """Closes the file. Another `add` opens a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _write(writer: EventsWriter, at: str, values: Mapping[str, Any]) -> None:
    """Writes the numbers as one event at the step `values[at]`."""
    event = Event(wall_time=time.time(), step=values[at])
    for name, value in values.items():
        if isinstance(value, int | float) and name != at:
            event.summary.value.add(tag=tag(name), simple_value=value)
    writer.write_event(event)


def tag(name: str) -> str:
    """TensorBoard's name for a metric. For example, `queue_base` becomes `base` in the group `queue`."""
    group, _, rest = name.partition("_")
    return f"{group}/{rest}" if rest and group in _GROUPS else name
