"""Where a process's time goes: which functions its Python threads are in, and what CPU time each thread has used."""

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
NATIVE = "framework"  # threads that Python knows nothing of: TensorFlow's, XLA's


class Sampler(threading.Thread):
    """Looks a hundred times a second at where each Python thread is; `with Sampler() as sampler`.

    A sample counts for the innermost function of this library that the thread is in: what it waits for there, or what
    that has called (TensorFlow's network: `tensorflow_learner._Operation.__call__`). Samples are of wall time, waits
    included. The sampler needs the interpreter's lock for each look, so it can't see a thread that holds it for a
    whole period.
    """

    def __init__(self, hertz: float = 100.0):
        super().__init__(name="sampler", daemon=True)
        self._period, self._ended = 1 / hertz, threading.Event()
        self._places: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.cost = 0.0  # share of one core that the sampling itself took

    def run(self) -> None:
        """The thread."""
        start, busy = time.monotonic(), time.thread_time()
        while not self._ended.wait(self._period):
            roles = {thread.ident: role(thread.name) for thread in threading.enumerate() if thread is not self}
            for ident, frame in sys._current_frames().items():
                if ident in roles:
                    self._places[roles[ident]][place(frame)] += 1
        self.cost = (time.thread_time() - busy) / (time.monotonic() - start)

    def shares(self) -> dict[str, dict[str, float]]:
        """By thread role and function, the larger ones first: its share of all samples of that role."""
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
    """What a thread does, by its name: those of a crew are numbered."""
    name, _, number = thread.rpartition("-")
    return "main" if thread == "MainThread" else name if name and number.isdigit() else thread


def place(frame: FrameType | None) -> str:
    """`module.function` of the innermost frame that is this library's."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            return f"{Path(code.co_filename).stem}.{code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back
    return "elsewhere"


def thread_seconds() -> dict[str, float]:
    """CPU seconds that this process's threads have used so far, by role; those that Python doesn't know are NATIVE."""
    names = {thread.native_id: role(thread.name) for thread in threading.enumerate()}
    seconds: dict[str, float] = defaultdict(float)
    for thread in psutil.Process().threads():
        seconds[names.get(thread.id, NATIVE)] += thread.user_time + thread.system_time
    return dict(seconds)


def child_seconds(children: Iterable[psutil.Process] | None = None) -> dict[psutil.Process, float]:
    """CPU seconds that child processes have used so far: the given ones, or all with their own children.

    Those that are gone are left out.
    """
    seconds = {}
    for child in psutil.Process().children(recursive=True) if children is None else children:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            seconds[child] = times.user + times.system
    return seconds
