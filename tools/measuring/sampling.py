"""Profiles a process: the functions in which its Python threads spend their time, and the CPU time of each thread."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import psutil

import gunreal

PACKAGE = str(Path(gunreal.__file__).parent)
NATIVE = "framework"  # threads that were not started by Python: those of TensorFlow and XLA


class Sampler(threading.Thread):
    """Samples the position of each Python thread a hundred times per second. Use it as a context manager.

    A sample counts for the innermost function of this library on the thread's stack, so it includes calls into other
    packages. TensorFlow's network, for example, counts for `tensorflow_learner._Operation.__call__`. Samples measure
    wall time, including waiting. The sampler needs the interpreter lock, so it misses threads that hold the lock for a
    whole sampling period.

    Attributes:
      cost: share of one core that the sampling itself took.
    """

    def __init__(self, hertz: float = 100.0):
        super().__init__(name="sampler", daemon=True)
        self._period, self._ended = 1 / hertz, threading.Event()
        self._places: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.cost = 0.0

    def run(self) -> None:
        """Samples until the end of the `with` block."""
        start, busy = time.monotonic(), time.thread_time()
        while not self._ended.wait(self._period):
            roles = {thread.ident: role(thread.name) for thread in threading.enumerate() if thread is not self}
            for ident, frame in sys._current_frames().items():
                if ident in roles:
                    self._places[roles[ident]][place(frame)] += 1
        self.cost = (time.thread_time() - busy) / (time.monotonic() - start)

    def shares(self) -> dict[str, dict[str, float]]:
        """Returns the share of samples of each function, by the role of the thread, largest first."""
        return {
            of_role: {name: count / places.total() for name, count in places.most_common()}
            for of_role, places in sorted(self._places.items())
        }

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def role(thread: str) -> str:
    """Returns the role of a thread: its name without the number that threads of a crew have."""
    name, _, number = thread.rpartition("-")
    return "main" if thread == "MainThread" else name if name and number.isdigit() else thread


def place(frame: FrameType | None) -> str:
    """Returns `module.function` of the innermost frame of this library."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            return f"{Path(code.co_filename).stem}.{code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back
    return "elsewhere"


def thread_seconds() -> dict[str, float]:
    """Returns the CPU seconds of this process's threads by role. Threads not started by Python count as NATIVE."""
    names = {thread.native_id: role(thread.name) for thread in threading.enumerate()}
    seconds: dict[str, float] = defaultdict(float)
    for thread in psutil.Process().threads():
        seconds[names.get(thread.id, NATIVE)] += thread.user_time + thread.system_time
    return dict(seconds)


def child_seconds(children: Iterable[psutil.Process] | None = None) -> dict[psutil.Process, float]:
    """Returns the CPU seconds of child processes, or of all descendants if none are given.

    Processes that have ended are left out.
    """
    seconds = {}
    for child in psutil.Process().children(recursive=True) if children is None else children:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            seconds[child] = times.user + times.system
    return seconds
