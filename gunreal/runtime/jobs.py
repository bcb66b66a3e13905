"""Trains runs in processes of their own, several at a time, and ends those that have reached their limits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gunreal.config import files, folders
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.config.sweeps import Planned, Sweep
from gunreal.records import checkpoint, comparison, metrics
from gunreal.runtime import signals

_PAUSE = 0.2  # seconds between looks at the processes
_BETWEEN_READS = 2.0  # seconds between looks at the metrics of a run with a limit
# The process asks for SIGTERM when this one dies, even by SIGKILL, and then becomes the training, which saves itself.
_LAUNCH = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"
)


class Command(NamedTuple):
    """What a process does for a run. Its output goes to the run's log, or to `out` once it has succeeded."""

    words: Sequence[str]
    does: str = "running"
    out: Path | None = None


class Job:
    """A run of a sweep.

    Attributes:
      path: its folder, which need not exist.
      steps: its budget in agent steps.
    """

    def __init__(self, planned: Planned, sweep: Sweep):
        self.planned, self._sweep = planned, sweep
        self.path, self.steps = sweep.folder / planned.given["name"], planned.config.steps
        self._read: tuple[int, list[dict[str, Any]]] = (-1, [])

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def log(self) -> Path:
        """The file with the output of its processes."""
        return self.path.with_name(f"{self.name}.log")

    @property
    def file(self) -> Path:
        """The file with the settings that the run was started with."""
        return self.path.with_name(f"{self.name}.toml")

    def next(self) -> Command | None:
        """The command that trains, resumes or evaluates the run, or None if it has finished."""
        program = [sys.executable, "-m", "gunreal"]
        if not self._trained():
            begun = (self.path / folders.CONFIG).is_file()
            words = ["resume", str(self.path)] if begun else ["train"]
            return Command([*program, *words, "--config", str(self.file)])
        found, episodes = comparison.evaluation(self.path), self._sweep.episodes
        if not episodes or (found is not None and len(found["scores"]) >= episodes):
            return None
        words = ["evaluate", str(self.path), "--episodes", str(episodes), "--json"]
        return Command([*program, *words], "evaluating", self.path / comparison.EVALUATION)

    def check(self) -> None:
        """Raises ConfigError if the folder of the run has another run."""
        if not self.path.exists():
            return
        if not self.file.is_file():
            raise ConfigError(f"{self.path} is not a run of this sweep; remove it, or choose another --name")
        before, now = Config(**files.load(self.file)), self.planned.config
        for key in sorted(FIELDS.keys() - folders.INCIDENTAL - {"logdir", "steps"}):
            old, new = getattr(before, key), getattr(now, key)
            if old != new:
                fix = "change it back, remove the run, or choose another --name"
                raise ConfigError(f"{self.path} has {key} {old!r}, not {new!r}; {fix}")
        if (self.path / folders.CONFIG).is_file():
            folders.resume_config(self.path, self.planned.given)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of metrics so far. Raises ConfigError if the file is damaged."""
        file = self.path / metrics.FILE
        try:
            changed = file.stat().st_mtime_ns
            if changed != self._read[0]:
                self._read = changed, metrics.read(file)
        except OSError:
            return []
        return self._read[1]

    def _trained(self) -> bool:
        """Whether the run has ended at one of its limits. Its checkpoints may be gone, but not for want of space."""
        if checkpoint.newest_step(self.path) >= self.steps:
            return True
        end = self.lines()[-1] if self.lines() else {}
        if (end.get("stopped_by") or "error") == "error":
            return False
        return self._is_over() or (end["stopped_by"] == "steps" and end["step"] >= self.steps)

    def _is_over(self) -> bool:
        """Whether the run has reached its score or its time."""
        lines, sweep = self.lines(), self._sweep
        if not lines:
            return False
        return lines[-1]["seconds"] >= 60 * sweep.minutes or metrics.first_reach(lines, sweep.score, "step") is not None

    def is_due(self) -> bool:
        """Whether the run has reached its score or its time, and has written metrics since it was started."""
        return self._is_over() and self._read[0] > self.file.stat().st_mtime_ns and not self.lines()[-1].get("resumed")

    def is_busy(self) -> bool:
        """Whether another process trains the run."""
        return self.path.exists() and bool(folders.is_busy(self.path))

    def seconds_left(self, rate: float) -> float:
        """Estimates the training time that the run still needs, from a number of agent steps per second."""
        lines = self.lines()
        step, seconds = (lines[-1]["step"], lines[-1]["seconds"]) if lines else (0, 0.0)
        return min(max(self.steps - step, 0) / rate, max(60 * self._sweep.minutes - seconds, 0))


class Scheduler:
    """Runs jobs until all have finished or failed, or a signal arrives.

    Args:
      say: called with a line about each start and end.
      tick: called about five times a second.

    Attributes:
      jobs: the runs, in the order in which they start.
      states: for each name of a run "waiting", "running", "evaluating", "stopped", "finished" or "failed".
      stopping: whether a signal has asked to stop.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        parallel: int,
        say: Callable[[str], None],
        tick: Callable[[], object] = lambda: None,
    ):
        self.jobs, self._parallel, self._say, self._tick = jobs, parallel, say, tick
        self.states = {job.name: "waiting" if job.next() else "finished" for job in jobs}
        self.stopping = False
        self._children: dict[Job, tuple[subprocess.Popen[bytes], Command]] = {}
        self._asked: set[Job] = set()  # running ones that have got a signal, and waiting ones that have been reported
        self._look = 0.0  # when to look for runs that have reached their limits

    def run(self) -> None:
        """Trains. At the end, no process is left.

        Raises:
          ConfigError: the metrics of a run are damaged.
          KeyboardInterrupt: a second signal came, which ends trainings that are saving their checkpoints.
        """
        with signals.handled() as interruption:
            interruption.stops(lambda _: setattr(self, "stopping", True))
            try:
                while self._children or (not self.stopping and "waiting" in self.states.values()):
                    self._start()
                    self._end()
                    self._reap()
                    self._tick()
                    time.sleep(_PAUSE)
            finally:
                for child, _ in self._children.values():
                    child.send_signal(signal.SIGINT)
                for child, _ in self._children.values():
                    child.wait()

    def _start(self) -> None:
        for job in self.jobs:
            if self.stopping or len(self._children) >= self._parallel:
                return
            if self.states[job.name] == "waiting":
                if not job.is_busy():
                    self._launch(job)
                elif job not in self._asked:
                    self._asked.add(job)
                    self._say(f"{job.name}: waiting for another process, which trains it")

    def _launch(self, job: Job) -> None:
        self._asked.discard(job)
        command = job.next()
        if command is None:  # another process has finished it
            self._ended(job, "finished")
            return
        try:
            files.write(job.planned.given, job.file)
            self._children[job] = _started(job, command), command
        except OSError as error:
            self._ended(job, "failed", f": {error}")
            return
        self._say(f"{job.name}: {command.does}")
        self.states[job.name] = command.does

    def _end(self) -> None:
        """Asks trainings to end that have reached their limits, or all if a signal has come."""
        due = self.stopping
        if not due and time.monotonic() >= self._look:
            self._look, due = time.monotonic() + _BETWEEN_READS, True
        for job, (child, command) in self._children.items() if due else ():
            if job not in self._asked and (self.stopping or (command.out is None and job.is_due())):
                self._asked.add(job)
                child.send_signal(signal.SIGINT)

    def _reap(self) -> None:
        for job, (child, command) in list(self._children.items()):
            if child.poll() is None:
                continue
            del self._children[job]
            self._asked.discard(job)
            if command.out and child.returncode == 0:
                os.replace(_temporary(command.out), command.out)
            follows = job.next()
            if not follows:
                self._ended(job, "finished")
            elif child.returncode == 0 and follows.does != command.does:
                self.states[job.name] = "waiting"
            elif self.stopping:
                self._ended(job, "stopped")
            else:
                last = job.log.read_text(errors="replace").strip().rpartition("\n")[2]
                self._ended(job, "failed", f" with exit code {child.returncode}: {last}")

    def _ended(self, job: Job, state: str, why: str = "") -> None:
        self.states[job.name] = state
        self._say(f"{job.name}: {state}{why}")


def _started(job: Job, command: Command) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as opened:
        log = opened.enter_context(open(job.log, "ab"))
        return subprocess.Popen(
            [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), *command.words],
            stdin=subprocess.DEVNULL,
            stdout=opened.enter_context(open(_temporary(command.out), "wb")) if command.out else log,
            stderr=log,
            start_new_session=True,  # it gets Ctrl-C from here only; a second signal would abort a checkpoint
        )


def _temporary(out: Path) -> Path:
    return out.with_suffix(".tmp")
