"""Trains runs in a process each. Finished runs are kept, and interrupted runs continue."""

from __future__ import annotations

import contextlib
import fcntl
import math
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from common.command_line import handled, stop_signals

from experiments.jobs import Job
from experiments.trainings import budget
from gunreal.config.schema import ConfigError

_STARTING = 30.0  # seconds for a resumed run to restore its state, before its metrics are trusted


@contextlib.contextmanager
def locked(logdir: str | Path) -> Iterator[IO[str]]:
    """Locks a folder of runs. Trainings inherit the lock, so the folder stays locked until the last of them has ended.

    Raises:
      ConfigError: the folder is locked by another program or can't be written.
    """
    try:
        Path(logdir).mkdir(parents=True, exist_ok=True)
        file = open(Path(logdir) / ".reproduce.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"can't write to {logdir}: {error.strerror}; choose another --logdir") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{logdir} is in use by other trainings; wait for them or choose another --logdir"
            ) from None
        yield file


class Dispatcher:
    """Trains runs until all have finished or a signal arrives.

    Args:
      trainings: the runs.
      parallel: number of concurrent runs.
      lock: open lock file, which the processes inherit.
      say: called with each line of progress.
      every: seconds between lines of progress.

    Attributes:
      failed: runs whose process ended too early.
    """

    def __init__(
        self,
        trainings: Sequence[Job],
        parallel: int,
        lock: IO[str],
        say: Callable[[str], None],
        every: float = 60.0,
    ):
        self._parallel, self._lock, self._say, self._every = parallel, lock, say, every
        self._waiting = [training for training in trainings if not training.finished()]
        self._working: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
        self._due: dict[str, float] = {}  # when to check whether a run has reached its time limit or score
        self._ending: set[str] = set()  # runs that were asked to end because they reached it
        self._signals = 0
        self.failed: list[Job] = []

    @property
    def stopping(self) -> bool:
        """Whether a signal has asked to stop."""
        return self._signals > 0

    def train(self, ended: Callable[[], object]) -> None:
        """Trains all runs, and calls `ended` after each finished run."""
        with handled(stop_signals(), self._note):
            try:
                self._work(ended)
            finally:
                self._interrupt()
                for _, child in self._working.values():
                    child.wait()

    def _work(self, ended: Callable[[], object]) -> None:
        forwarded, said = 0, time.monotonic()
        while self._working or (self._waiting and not self.stopping):
            while self._waiting and not self.stopping and len(self._working) < self._parallel:
                self._start(self._waiting.pop(0))
            time.sleep(0.2)
            if self._signals > forwarded:
                forwarded = self._signals
                self._interrupt()
            self._end_due()
            self._reap(ended)
            if time.monotonic() - said >= self._every:
                said = time.monotonic()
                for training, _ in self._working.values():
                    self._say(f"{self._progress(training)}; {self._left()}")

    def _interrupt(self) -> None:
        for name, (_, child) in self._working.items():
            if name in self._ending:  # it is saving a checkpoint, which a second signal would abort
                self._ending.remove(name)
            else:
                child.send_signal(signal.SIGINT)

    def _end_due(self) -> None:
        """Ends runs that have reached their time limit or score."""
        now = time.monotonic()
        for name, (training, child) in self._working.items():
            if self.stopping or now < self._due[name]:
                continue
            self._due[name] = now + 1  # reading the metrics takes a while, so do it once per second
            if training.over():
                self._due[name] = math.inf
                self._ending.add(name)
                child.send_signal(signal.SIGINT)

    def _note(self, *_: Any) -> None:
        self._signals += 1

    def _start(self, training: Job) -> None:
        if not training.resumable():  # it has no checkpoint, so it starts again
            if training.path.is_symlink():
                training.path.unlink()
            shutil.rmtree(training.path, ignore_errors=True)
        training.prepare()
        command, log = training.command(), self._log(training)
        self._say(f"{training.name}: {shlex.join(['python', *command[1:]])} > {log}")
        with open(log, "ab") as file:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lock.fileno(),),
                start_new_session=True,  # this program passes Ctrl-C on; a second signal would abort a checkpoint
            )
        self._working[training.name] = training, child
        least = _STARTING if training.resumable() else 0.0
        left = 0.0 if math.isfinite(training.score) else 60 * training.minutes - training.seconds()
        left = max(left, least)
        self._due[training.name] = time.monotonic() + left

    def _log(self, training: Job) -> Path:
        return training.path.with_name(f"{training.name}.log")

    def _reap(self, ended: Callable[[], object]) -> None:
        for name, (training, child) in list(self._working.items()):
            if child.poll() is None:
                continue
            del self._working[name]
            if training.finished():
                self._say(self._progress(training) + ", finished")
                ended()
            elif not self.stopping:
                self.failed.append(training)
                last = self._log(training).read_text(errors="replace").strip().rpartition("\n")[2]
                self._say(f"{name} failed with exit code {child.returncode}: {last}")
            else:
                self._say(self._progress(training) + ", stopped")

    def _progress(self, training: Job) -> str:
        lines = training.lines()
        if not lines:
            return f"{training.name}: starting"
        score = next((line["score_mean"] for line in reversed(lines) if line["score_mean"] is not None), None)
        whole = budget(training.steps, training.minutes)
        done = f"{lines[-1]['step']:,}"
        if math.isfinite(training.minutes):
            done += f" agent steps, {lines[-1]['seconds'] / 60:.1f}"
        words = f"{training.name}: {done} of {whole}"
        words += f", score {score:.2f}" if score is not None else ""
        return f"{words}, {_rate(lines):,.0f} agent steps/s"

    def _left(self) -> str:
        """Estimates the remaining time of all runs that have not ended, from the rates of the current ones."""
        rates = [_rate(lines) for training, _ in self._working.values() if (lines := training.lines())]
        if not sum(rates):
            return "no steps yet"
        rate = sum(rates) / len(rates)
        missing = [*(training for training, _ in self._working.values()), *self._waiting]
        left = [min(max(of.steps - of.step(), 0) / rate, max(60 * of.minutes - of.seconds(), 0)) for of in missing]
        return f"about {sum(left) / len(rates) / 3600:.1f} h left for all runs"


def _rate(lines: Sequence[dict[str, Any]]) -> float:
    """Returns the mean agent steps per second since the start of the run."""
    return lines[-1]["step"] / max(lines[-1]["seconds"], 1e-9)


def attempt(draw: Callable[[], object], say: Callable[[str], None]) -> bool:
    """Calls `draw` and reports an error instead of raising it, so that the trainings continue."""
    try:
        draw()
        return True
    except (OSError, ValueError) as error:
        say(f"results not written: {error}")
        return False
