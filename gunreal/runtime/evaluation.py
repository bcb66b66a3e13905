"""Evaluation during training (`--eval_steps`, `--eval_minutes`), in a process of its own.

The process loads a copy of the weights and plays episodes on the CPU, with the lowest priority. It cannot change the
weights or the random streams of the run. At most one runs at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from gunreal.config.folders import command, remedy
from gunreal.config.process import python
from gunreal.config.warning import warn
from gunreal.envs import process_groups
from gunreal.learning.devices import ON_CPU
from gunreal.records import checkpoint, metrics
from gunreal.runtime.base import Runner

KEYS = ("eval_step", "eval_score_mean", "eval_score_std", "eval_length_mean")
_FOLDER = "evaluation"
_KEPT = 2**16  # bytes of errors
# Seconds added to the environment's timeout, before the first step and after it. Next to a busy process of normal
# priority, one of the lowest gets 1/70 of a processor, and next to several even less. Seconds of work then take
# minutes, such as compiling the network for fewer environments, and loading the backend may take most of an hour.
_STARTING, _STARVED = 3600.0, 900.0
_BOOT = "from gunreal.runtime.playing import main\nmain()"


class Evaluation:
    """Starts evaluations when they are due, and collects their scores.

    With `eval_steps` they are due at multiples of it, also after a resume, which makes up for one that the end of the
    run has cut off. An evaluation that is due while another one runs waits for it, and then uses the newest weights.
    One that takes no step for too long is killed.
    """

    def __init__(self, runner: Runner, run_dir: Path):
        self._runner, self._run_dir, self._config = runner, run_dir, runner.status.config
        self._folder = run_dir / _FOLDER
        shutil.rmtree(self._folder, ignore_errors=True)  # left by a run that was killed
        self._step = _last_evaluated(run_dir)  # the newest weights that need no evaluation
        self._since, self._next = time.monotonic(), self._multiple_after(self._step)
        self._popen: subprocess.Popen[bytes] | None = None
        self._scores: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # The process sets the time of this file after each step.
        self._alive: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._last_sign, self._heard, self._patience = 0, 0.0, 0.0
        self._found: list[dict[str, Any]] = []

    def _multiple_after(self, step: int) -> int:
        size = self._config.eval_steps
        return (step // size + 1) * size if size else sys.maxsize

    def tick(self) -> None:
        """Called about ten times a second. Takes the result of an evaluation that has ended, and starts one if due."""
        if self._popen and process_groups.has_ended(self._popen):
            self._collect(self._popen)
        elif self._popen:
            self._supervise()
        if not self._popen and self._is_due():
            self._start()

    def take(self) -> dict[str, Any]:
        """The scores of the oldest evaluation that is in no line of metrics yet, by `KEYS`. Null if there is none."""
        return self._found.pop(0) if self._found else dict.fromkeys(KEYS)

    def left(self) -> int:
        """Number of evaluations whose scores have not been taken."""
        return len(self._found)

    def finish(self) -> None:
        """Waits for the current evaluation and for one that is due. A signal ends the wait."""
        self.tick()
        if self._popen:
            warn(f"waiting for the evaluation at step {self._step:,}")
        while self._popen and not self._runner.status.in_haste:
            time.sleep(0.1)
            self.tick()

    def close(self) -> None:
        """Ends the current evaluation, if there is one, and removes its files."""
        self._kill()
        for file in (self._scores, self._errors, self._alive):
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> None:
        if self._popen:
            process_groups.kill(self._popen)
            process_groups.close_input(self._popen)
            self._popen = None

    def _supervise(self) -> None:
        """Ends a process that has not taken a step for too long."""
        now, sign = time.monotonic(), self._sign()
        if sign != self._last_sign:
            self._last_sign, self._heard, self._patience = sign, now, self._config.env_timeout + _STARVED
        elif now - self._heard > self._patience:
            self._kill()
            fix = "raise --env_timeout if its environment is that slow"
            if self._config.runner == "device":
                fix = f"to see where it hangs, run {command('evaluate', self._run_dir)}"
            warn(f"the evaluation at step {self._step} failed: no step within {self._patience:g} s; {fix}")

    def _sign(self) -> int:
        """The time of the process's last step, by the clock of the file."""
        return os.fstat(self._alive.fileno()).st_mtime_ns

    def _is_due(self) -> bool:
        minutes, step = self._config.eval_minutes, self._runner.status.metrics.step
        by_time = bool(minutes) and time.monotonic() - self._since >= 60 * minutes
        # The same weights are not evaluated twice, or the wait at the end of the run might have no end.
        return step > self._step and (by_time or step >= self._next)

    def _start(self) -> None:
        self._since = time.monotonic()
        self._runner.drain_episodes()  # the steps of a device run are counted when they are read
        self._step = self._runner.status.metrics.step
        self._next = self._multiple_after(self._step)
        try:
            path = checkpoint.save(self._folder, self._step, self._runner.state(), {})
        except OSError as error:
            warn(f"no evaluation at step {self._step}: {error}; {remedy(self._run_dir, error)}")
            return
        for file in (self._scores, self._errors):
            os.ftruncate(file.fileno(), 0)
            file.seek(0)
        self._last_sign, self._heard = self._sign(), time.monotonic()
        self._patience = self._config.env_timeout + _STARTING
        try:
            self._popen = self._process()
        except OSError as error:
            warn(f"no evaluation at step {self._step}: {error}; free some memory, or stop other processes")
            return
        process_groups.tell(self._popen, (self._run_dir, path, self._alive.fileno(), self._scores.fileno()))

    def _process(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            python(_BOOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # environments may print
            stderr=self._errors,
            pass_fds=(self._alive.fileno(), self._scores.fileno()),
            process_group=0,  # not a session of its own: Linux weighs nice values within a session only
            env=os.environ | ON_CPU,
        )

    def _collect(self, ended: subprocess.Popen[bytes]) -> None:
        process_groups.close_input(ended)
        self._popen = None
        result = None if ended.returncode else _end(self._scores)
        if not result:
            reason = (_end(self._errors).strip() or f"exit code {ended.returncode}").splitlines()[-1]
            warn(f"the evaluation at step {self._step} failed: {reason}")
            return
        self._found.append(dict(zip(KEYS, (self._step, *json.loads(result)), strict=True)))


def _last_evaluated(run_dir: Path) -> int:
    """The step of the last evaluation of a run, or 0."""
    return max((line["eval_step"] for line in metrics.lines(run_dir) if line.get("eval_step")), default=0)


def _end(file: IO[bytes]) -> str:
    """The last part of a file as text."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), _KEPT, max(0, size - _KEPT)).decode(errors="replace")
