"""Measures a program from outside: its agent steps, and the CPU time and memory of its process tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from common.command_line import handled
from peers.progress import Progress

from gunreal.runtime import ram

PATIENCE = 180.0  # seconds without progress after which a program has failed, including its start
GRACE = 60.0  # seconds for the program to end by itself
ALONE = 10.0  # seconds for its child processes to end after it
_POLL = 0.01


class Failed(Exception):
    """A program ended or made no progress before it was measured."""


class Reading(NamedTuple):
    """A reading of all counters.

    Attributes:
      time: time in seconds, from a monotonic clock.
      steps: agent steps trained.
      cpu: CPU seconds of the program's processes.
      busy: CPU seconds that the cores have worked, for any program.
    """

    time: float
    steps: int
    cpu: float
    busy: float


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the end of the `with` block."""
    came: list[int] = []
    try:
        with handled((signal.SIGINT, signal.SIGTERM), lambda number, _: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


class Gauge:
    """Runs a program that reports its steps to a `Progress`. Use it as a context manager.

    Args:
      command: command of the program, to which `--progress FILE` is added.
      folder: folder for this file, the program's output and its temporary files.
    """

    def __init__(self, command: Sequence[str], folder: Path):
        path, self._log = folder / "progress", folder / "log"
        self._command = [*command, "--progress", str(path)]
        self._environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(folder)}
        self._progress = Progress(path)
        self._cores = sorted(os.sched_getaffinity(0))

    def __enter__(self) -> Gauge:
        """Starts the program. A signal during the start ends it again."""
        with contextlib.ExitStack() as undo:
            with _uninterrupted(), open(self._log, "wb") as log:
                self._popen = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C in the terminal must only reach this process
                )
                undo.push(self)
            undo.pop_all()
        return self

    def measure(self, warmup: float, seconds: float) -> dict[str, Any]:
        """Waits for the first progress and another `warmup` seconds, then measures for `seconds`.

        The measurement starts and ends with a report of progress, so that it covers whole cycles of acting and
        learning.

        Returns:
          `rate` in agent steps per second; `cpu_ms`, the CPU milliseconds of all processes per agent step; `memory` of
          all processes in bytes, with shared memory counted once; `others`, the share of the cores that other programs
          used; `steps`, `seconds` and `processes`.

        Raises:
          Failed: the program ended, or made no progress for PATIENCE seconds.
        """
        started = self._advance(0.0)
        first = self._advance(started.time + warmup)
        last = self._advance(first.time + seconds)
        pids = [process.pid for process in self._tree()]
        elapsed, steps = last.time - first.time, last.steps - first.steps
        cpu, busy = last.cpu - first.cpu, last.busy - first.busy
        return {
            "rate": steps / elapsed,
            "cpu_ms": 1000 * cpu / steps,
            "memory": ram.in_use(pids),
            "others": max(0.0, busy - cpu) / (elapsed * len(self._cores)),
            "steps": steps,
            "seconds": elapsed,
            "processes": len(pids),
        }

    def _advance(self, moment: float) -> Reading:
        """Waits until `moment`, and then for the next report of progress."""
        while time.monotonic() < moment:
            self._check_alive()
            time.sleep(_POLL)
        steps, deadline = self._progress.steps(), time.monotonic() + PATIENCE
        while self._progress.steps() == steps:
            self._check_alive()
            if time.monotonic() > deadline:
                raise Failed(f"made no progress for {PATIENCE:g} s: {self._last_words()}")
            time.sleep(_POLL)
        return self._read()

    def _check_alive(self) -> None:
        if self._popen.poll() is not None:
            raise Failed(f"ended with code {self._popen.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip().rpartition("\n")[2] or "it printed nothing"

    def _read(self) -> Reading:
        cpu = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()  # includes the times of children that have ended
                cpu += times.user + times.system + times.children_user + times.children_system
        cores = psutil.cpu_times(percpu=True)
        busy = sum(sum(cores[core][:8]) - cores[core].idle - cores[core].iowait for core in self._cores)
        return Reading(time.monotonic(), self._progress.steps(), cpu, busy)

    def _tree(self) -> list[psutil.Process]:
        """Returns the processes of the program's session, which may have lost their parents, and their descendants."""
        parents = {}
        members = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                parents[process] = process.ppid()
                if os.getsid(process.pid) == self._popen.pid:
                    members.add(process.pid)
        size = 0
        while size < len(members):
            size = len(members)
            members |= {process.pid for process, parent in parents.items() if parent in members}
        return [process for process in parents if process.pid in members]

    def __exit__(self, *_: object) -> None:
        """Ends the program and all its processes, by force if necessary."""
        tree = self._tree()
        try:
            self._progress.stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(GRACE)
            tree = list({*tree, *self._tree()})
            for process in tree:  # processes in other sessions end by themselves and free their shared memory
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    if os.getsid(process.pid) == self._popen.pid:
                        process.terminate()
            psutil.wait_procs(tree, ALONE)
        finally:
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._popen.wait()
            psutil.wait_procs(tree, ALONE)
            self._progress.close()
