"""The agent processes as the server sees them: started, fed with replies, watched, restarted, stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from typing import IO

import numpy as np

from gunreal.acting.agent import Outbox, Worker, group_slices
from gunreal.acting.process import Assignment
from gunreal.config.schema import Config
from gunreal.experience import queues
from gunreal.experience.segment import Layout, Segment
from gunreal.experience.waits import Waited
from gunreal.tasks.base import AuxiliaryTask

_BOOT = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from gunreal.acting.process import main
main()"""
_STARTING = 60.0  # seconds that a process may take beyond the environment's timeout until its first step
_LEAVING = 1.0  # seconds that a process has for closing its environments
_KEPT_ERRORS = 2**20  # bytes


class AgentFailure(RuntimeError):
    """Agent processes die at once, again and again; the message ends with the environment's own traceback."""


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

    def reply(self, queue: int, groups: Collection[int]) -> None:
        """Tells the worker that `queue` has served `groups`; nothing happens once the member is closed."""
        with self._closing:  # a late reply must not land in a file that got the closed pipe's number
            if not self._closed:
                queues.put(self.wake.write_fd, np.array([(queue, group) for group in groups], queues.REPLY))

    def stuck_for(self) -> float:
        """Seconds that the slowest group has spent in its present environment step."""
        since = self.segment.busy_since.copy()  # the worker may set it to 0 at any moment
        since = since[since > 0]
        return time.monotonic() - float(since.min()) if len(since) else 0.0

    def leave(self) -> None:
        """Tells the worker to end; no reply reaches it any more."""
        with self._closing:
            self._closed = True
            self.wake.end()

    def close(self) -> None:
        """Frees the memory and the pipe."""
        self.leave()
        self.wake.close()
        self.segment.close()


def rollouts_that_wait(rollouts: int, agents: int, together: int) -> int:
    """The fewest rollouts that each of `agents` must be able to leave waiting, so that they fill a batch of `rollouts`,
    even if the last batch took all but one of a group's; processes have `together` agents in two groups."""
    return -(-(rollouts + (together - 1) // 2) // agents)


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
    """Agents in a process of their own. Its error output is kept, for the message if it dies.

    Attributes:
      failures: how many processes in its place have died at once, in a row, before it.
    """

    def __init__(self, process: int, config: Config, layout: Layout, outbox: Outbox, failures: int = 0):
        super().__init__(process, layout)
        self.failures = failures
        self.segment.busy_since[:] = self.started + _STARTING
        self._left = 0.0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)  # it can be emptied while the process writes
        inherited = (self.segment.fd, self.wake.read_fd, *outbox.requests, outbox.rollouts, outbox.episodes)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=self._errors,  # what environments print would garble the live display
            stderr=self._errors,
            pass_fds=inherited,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is the server's to handle
        )
        assert self.popen.stdin is not None
        assignment = Assignment(config, layout, process, self.segment.fd, self.wake.read_fd, outbox)
        self._start(assignment)

    def _start(self, assignment: Assignment) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died at once; `exited` will tell
            self.popen.stdin.write(pickle.dumps(sys.path) + pickle.dumps(assignment))  # type: ignore[union-attr]
            self.popen.stdin.flush()  # type: ignore[union-attr]

    def exited(self) -> bool:
        """True once the process is gone; whatever its environments have started and left is ended then."""
        if self.popen.returncode is None:
            # Not `poll`, which would reap it: until then its number, and so that of its group, is nobody else's.
            ended = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._end_group()
        return self.popen.returncode is not None

    def errors(self) -> str:
        """What the process has written to its standard error, its last 4,000 characters."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").strip()

    def trim_errors(self) -> None:
        """Empties the kept error output when it has grown large: an environment may write there at every step."""
        if os.fstat(self._errors.fileno()).st_size > _KEPT_ERRORS:
            os.ftruncate(self._errors.fileno(), 0)

    def kill(self) -> None:
        """Ends the process at once, with whatever its environments have started."""
        if not self.exited():
            self._end_group()

    def _end_group(self) -> None:
        os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def leave(self) -> None:
        """Asks the process to close its environments and end."""
        super().leave()
        self._left = self._left or time.monotonic()

    def close(self) -> None:
        """Waits until a second after `leave`, then ends the process, and frees what it held."""
        self.leave()
        while not self.exited() and time.monotonic() < self._left + _LEAVING:
            time.sleep(0.002)
        self.kill()
        with contextlib.suppress(BrokenPipeError):  # it died before it read its assignment
            self.popen.stdin.close()  # type: ignore[union-attr]
        self._errors.close()
        super().close()


class Pool:
    """All members, by process number. Numbers are never used again, so a late message of a dead process finds nobody.

    The more agents there are, the fewer rollouts of each may wait for the trainers: many would only be old by then.

    Args:
      rollouts: in a training batch.
      first: the first process's number.
      share: part of the agents whose rollouts must be able to fill a batch. A small part keeps the trainers busy while
        others start; all of the agents keep rollouts young.

    Attributes:
      next: the next process's number; environments are seeded by it.
    """

    def __init__(self, rollouts: int, first: int = 0, share: float = 0.25) -> None:
        self._rollouts, self._share = rollouts, share
        self._members: dict[int, Member] = {}
        self.next = first
        self._lock = threading.Lock()

    def next_process(self) -> int:
        """A fresh process number."""
        with self._lock:
            self.next += 1
            return self.next - 1

    def add(self, member: Member) -> None:
        """Makes a member known to predictors and trainers."""
        with self._lock:
            self._members = {**self._members, member.process: member}
            self._allow()

    def remove(self, process: int) -> Member:
        """Takes a member out; its records that are still under way are dropped."""
        with self._lock:
            members = dict(self._members)
            member = members.pop(process)
            self._members = members
            self._allow()
            return member

    def _allow(self) -> None:
        """Sets every agent's allowance, and tells those that have more than before."""
        members = self.members()
        agents = sum(member.segment.layout.agents for member in members)
        for member in members:
            layout = member.segment.layout
            sharing = max(1, int(agents * self._share))
            allowance = min(layout.slots, rollouts_that_wait(self._rollouts, sharing, layout.agents))
            grown = allowance > member.segment.allowance
            member.segment.allowance = allowance
            if grown:
                member.reply(queues.TRAINED, range(len(member.groups)))

    def get(self, process: int) -> Member | None:
        """The member, or None once it was removed."""
        return self._members.get(process)

    def members(self) -> list[Member]:
        """A snapshot, oldest first."""
        return list(self._members.values())

    def waited(self) -> dict[int, Waited]:
        """What each process's groups have waited for predictions so far, by process number."""
        return {member.process: member.segment.waits.total() for member in self.members()}
