"""`python -m gunreal.train` as a user starts it: a process in a folder of its own; for the tests of whole runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gunreal.records import metrics

TESTS = Path(__file__).parent
PATIENCE = 600.0  # seconds; only a test that fails waits so long


def wait_until(condition, what: str = "it did not happen") -> None:
    """Waits for a condition, and fails the test when it doesn't come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(what)
        time.sleep(0.02)


def use_dead_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts as Python now ends with code 3 before it has read anything."""
    program = folder / "python"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody has asked for has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Training:
    """A training process, its folder and what it leaves."""

    def __init__(
        self, folder: Path, *flags: object, name: str = "run", program: tuple[str, ...] = ("-m", "gunreal.train")
    ):
        self.folder, self.path = folder, folder / "runs" / name
        self._errors = open(folder / f"{name}.{time.monotonic_ns()}.err", "w+")  # noqa: SIM115
        own = ("--name", name) if "--resume" not in flags and program[0] == "-m" else ()
        self.popen = subprocess.Popen(
            # Without `env`, a SIGHUP that `nohup` makes the tests ignore would be ignored by the training as well.
            ["env", "--default-signal=HUP", sys.executable, *program, *own, *map(str, flags)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            start_new_session=True,
        )

    @property
    def stderr(self) -> str:
        """What the process has written to its standard error, but for what a slow machine waits for."""
        lines = Path(self._errors.name).read_text().splitlines(keepends=True)
        return "".join(line for line in lines if "still waiting for" not in line)

    def lines(self) -> list[dict]:
        """The lines of metrics."""
        path = self.path / metrics.FILE
        return metrics.read(path) if path.exists() else []

    def checkpoints(self) -> list[Path]:
        """The numbered checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step_*.npz"))

    def agents(self) -> list[int]:
        """Process numbers of all descendants: the agents' and their children's."""
        try:
            return [child.pid for child in psutil.Process(self.popen.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def memory(self) -> set[int]:
        """Inodes of the replay rings that the process holds."""
        found = set()
        for fd in Path(f"/proc/{self.popen.pid}/fd").iterdir():
            if "gunreal-replay" in os.readlink(fd):
                found.add(os.stat(fd).st_ino)
        return found

    def wait_for(self, condition, what: str = "") -> None:
        """Waits until `condition(lines)` of the metrics; fails when the process ends before."""

        def holds() -> bool:
            lines = self.lines()
            if lines and condition(lines):
                return True
            if self.popen.poll() is not None:
                pytest.fail(f"training ended with {self.popen.returncode}:\n{self.stderr}")
            return False

        wait_until(holds, what=f"{what or 'metrics'}: {json.dumps(self.lines()[-1:])}\n{self.stderr}")

    def end(self) -> int:
        """Waits for the process; returns its exit code."""
        try:
            return self.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"training did not end: {json.dumps(self.lines()[-1:])}\n{self.stderr}")

    def signal(self, number: signal.Signals) -> int:
        """Sends a signal and waits for the process; returns its exit code."""
        self.popen.send_signal(number)
        return self.end()

    def close(self) -> None:
        """Whatever happened: nothing is left running."""
        children = self.agents()
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        for pid in children:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
        self._errors.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def left_in_shared_memory() -> set[str]:
    """Names in /dev/shm that no process has mapped: those of processes that have ended, also of other tests."""
    names, mapped = set(os.listdir("/dev/shm")), ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # the process has ended
            mapped += maps.read_text()
    return {name for name in names if f"/dev/shm/{name}" not in mapped}


def holders(inodes: set[int]) -> list[str]:
    """Open files of any process that are one of these replay rings."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if "gunreal-replay" in os.readlink(link) and os.stat(link).st_ino in inodes:
                found.append(str(link))
        except OSError:
            continue
    return found


def open_files() -> set[tuple[int, int]]:
    """The files that this process has open, by device and inode. Those of earlier tests may be closed at any time."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder itself was open only while it was read
            status = os.fstat(int(number))
            found.add((status.st_dev, status.st_ino))
    return found
