"""The agent processes as the server sees them: started, fed with replies, watched, restarted, stopped."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

import numpy as np

from gunreal import queues
from gunreal.agent import Assignment, Outbox, Worker, group_slices
from gunreal.config import Config
from gunreal.replay import Layout, Segment
from gunreal.tasks.base import AuxiliaryTask


class Member:
    """One segment of agents, and the pipe by which its worker is woken."""

    def __init__(self, process: int, layout: Layout):
        self.process = process
        self.segment = Segment(layout)
        self.wake = queues.Pipe(queues.REPLY)
        self.groups = group_slices(layout.agents)
        self.started = time.monotonic()
        self._closing = threading.Lock()
        self._closed = False

    def reply(self, queue: int, groups: set[int] | list[int]) -> None:
        """Tells the worker that `queue` has served `groups`; nothing happens once the member is closed."""
        with self._closing:  # a late reply must not land in a file that got the closed pipe's number
            if not self._closed:
                queues.put(self.wake.write_fd, np.array([(queue, group) for group in groups], queues.REPLY))

    def stuck_for(self) -> float:
        """Seconds that the slowest group has spent in its present environment step."""
        since = self.segment.busy_since[self.segment.busy_since > 0]
        return time.monotonic() - float(since.min()) if len(since) else 0.0

    def close(self) -> None:
        """Frees the memory and the pipe."""
        with self._closing:
            self._closed = True
            self.wake.close()
            self.segment.close()


class Local(Member):
    """Agents of `--serial`: the worker lives in this process and is stepped by its owner."""

    def __init__(self, process: int, config: Config, layout: Layout, tasks: tuple[AuxiliaryTask, ...], outbox: Outbox):
        super().__init__(process, layout)
        self.worker = Worker(config, layout, tasks, process, self.segment, outbox)

    def step(self) -> None:
        """Handles the replies that wait."""
        self.worker.handle(self.wake.get(1024, 0))

    def close(self) -> None:
        """Closes the environments too."""
        self.worker.close()
        super().close()


class Remote(Member):
    """Agents in a process of their own. Its error output is kept, for the message if it dies."""

    def __init__(self, process: int, config: Config, layout: Layout, outbox: Outbox):
        super().__init__(process, layout)
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        inherited = (self.segment.fd, self.wake.read_fd, *outbox.requests, outbox.rollouts, outbox.episodes)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", "from gunreal.agent import main; main()"],
            stdin=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=inherited,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is the server's to handle
        )
        assert self.popen.stdin is not None
        assignment = Assignment(config, layout, process, self.segment.fd, self.wake.read_fd, outbox)
        self._start(assignment)

    def _start(self, assignment: Assignment) -> None:
        try:
            self.popen.stdin.write(pickle.dumps(sys.path) + pickle.dumps(assignment))  # type: ignore[union-attr]
            self.popen.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:  # it died at once; `exited` will tell
            pass

    def exited(self) -> bool:
        """True once the process is gone."""
        return self.popen.poll() is not None

    def errors(self) -> str:
        """What the process has written to its standard error, its last 4,000 characters."""
        self._errors.flush()
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").strip()

    def kill(self) -> None:
        """Ends the process at once."""
        self.popen.kill()
        self.popen.wait()

    def close(self) -> None:
        """Asks the process to end, ends it after a second, and frees what it held."""
        if self.popen.stdin is not None and not self.popen.stdin.closed:
            self.popen.stdin.close()
        try:
            self.popen.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._errors.close()
        super().close()


class Pool:
    """All members, by process number. Numbers are never used again, so a late message of a dead process finds nobody."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}
        self._next = 0
        self._lock = threading.Lock()

    def next_process(self) -> int:
        """A fresh process number."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def add(self, member: Member) -> None:
        """Makes a member known to predictors and trainers."""
        with self._lock:
            self._members = {**self._members, member.process: member}

    def remove(self, process: int) -> Member:
        """Takes a member out; its records that are still under way are dropped."""
        with self._lock:
            members = dict(self._members)
            member = members.pop(process)
            self._members = members
            return member

    def get(self, process: int) -> Member | None:
        """The member, or None once it was removed."""
        return self._members.get(process)

    def members(self) -> list[Member]:
        """A snapshot, oldest first."""
        return list(self._members.values())
