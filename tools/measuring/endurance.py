"""Checks a system under full load for memory leaks, unanswered requests, and threads and processes left behind."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import psutil
from common.command_line import say

from gunreal.config.schema import Config
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System
from measuring import measure

FLAT = 0.02  # share by which memory may vary
_EVERY = 10.0  # seconds between readings
_ALIVE = 20.0  # seconds in which every group has to step at least once, even if many share few cores


class Watch:
    """Takes readings of a run while it trains, and stops it after some time.

    Args:
      system: the system to watch.
      seconds: length of the run, from the first reading.

    Attributes:
      looks: the readings: "minutes", "steps", the counts of processes and threads, and the memory of "server" and
        "agent" (one process each) and in "total", in bytes.
      groups: problems with the requests of groups at the end, by the name of the group.
    """

    def __init__(self, system: System, seconds: float):
        self._system = system
        self._seconds = seconds
        self._start = self._next = self._end = 0.0  # set when training begins: before, it may compile for a minute
        self._last: dict[int, Any] = {}  # steps of each process's agents at the end of the time
        self.looks: list[dict[str, Any]] = []
        self.groups: dict[str, str] = {}

    def tick(self, run: ParallelRunner) -> None:
        """Takes a reading if it is time for one. Called about ten times per second."""
        now = time.monotonic()
        if not self._start:
            self._start, self._end = now, now + self._seconds
        if now >= self._next:
            self._next = now + _EVERY
            self._look(run, now)
        if now >= self._end and not self._last:
            self._last = {remote.process: remote.segment.end.copy() for remote in run.remotes()}
        if self._last and now >= self._end + _ALIVE:
            self.groups = self._wrong(run)
            self._system.stop("steps")

    def _look(self, run: ParallelRunner, now: float) -> None:
        look = {"minutes": (now - self._start) / 60, "steps": self._system.metrics.step, **run.counts._asdict()}
        look |= {"server": _own(os.getpid()), "total": run.memory_in_use()}
        started = [remote.popen.pid for remote in run.remotes() if now - remote.started > _ALIVE]
        look["agent"] = statistics.median(map(_own, started)) if started else None
        self.looks.append(look)
        if len(self.looks) % 6 == 1:
            sizes = ", ".join(f"{name} {(look[name] or 0) / 2**20:,.0f} MiB" for name in ("server", "agent", "total"))
            say(f"{look['steps']:,} steps; processes, predictors, trainers: {tuple(run.counts)}; {sizes}")

    def _wrong(self, run: ParallelRunner) -> dict[str, str]:
        """Returns the groups that are stuck, or that lack an answer to a request other than the latest one."""
        wrong = {}
        for remote in run.remotes():
            if remote.process not in self._last:
                continue  # it was started after the end of the time
            least = remote.segment.waits.total().counts.sum(axis=1)
            end = remote.segment.end.copy()
            most = remote.segment.waits.total().counts.sum(axis=1)
            for index, group in enumerate(remote.groups):
                row = int(end[group.start])  # the request for this row may be pending; all earlier ones are answered
                name = f"process {remote.process}, group {index}"
                if row == self._last[remote.process][group.start]:
                    wrong[name] = f"has been stuck for {_ALIVE:g} s at step {row}"
                elif not (least[index] <= row + 1 and row <= most[index]):
                    wrong[name] = f"has sent {row + 1} requests and received {most[index]} answers"
        return wrong


def spread(looks: Sequence[dict[str, Any]], name: str) -> float:
    """Returns (largest - smallest) / median over the last two thirds of the readings, or infinity without readings."""
    values = [look[name] for look in looks[len(looks) // 3 :] if look[name] is not None]
    return (max(values) - min(values)) / statistics.median(values) if values else math.inf


def soak(config: Config, minutes: float) -> dict[str, Any]:
    """Runs a system for some minutes.

    Returns:
      "looks" and "groups", as in `Watch`; "spread" of the memory, by process; and "left", the threads and processes
      that are left after the run.
    """
    before = {thread.name for thread in threading.enumerate()}
    others = psutil.Process().children(recursive=True)
    _, watch = measure.watched(config, lambda system: Watch(system, 60 * minutes))
    left = [f"thread {thread.name}" for thread in threading.enumerate() if thread.name not in before]
    left += [f"process {child.pid}" for child in psutil.Process().children(recursive=True) if child not in others]
    spreads = {name: spread(watch.looks, name) for name in ("server", "agent")}
    return {"looks": watch.looks, "spread": spreads, "groups": watch.groups, "left": left}


def _own(pid: int) -> int:
    """Number of bytes that a process shares with no other. 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_full_info().uss)
    return 0
