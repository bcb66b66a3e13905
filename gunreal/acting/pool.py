"""The server's side of agent processes: start, replies, supervision and stop."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator

import numpy as np

from gunreal.acting.agent import Outbox, Worker, group_slices
from gunreal.acting.output import Output
from gunreal.acting.process import Assignment
from gunreal.config.plugins import place
from gunreal.config.process import python
from gunreal.config.schema import Config, ConfigError
from gunreal.envs import process_groups
from gunreal.envs.step import AgentFailure
from gunreal.experience import queues
from gunreal.experience.segment import Layout, Segment
from gunreal.experience.waits import Waited
from gunreal.learning.task import AuxiliaryTask
from gunreal.tasks.calls import TaskError

_PAUSE = 10.0  # seconds between two looks at a process, after which this program must have been stopped
_STARTING = 60.0  # seconds added to the environment's timeout before the first step


class TaskFailure(AgentFailure):
    """An auxiliary task fails, as it would again in another process. The message is one line with the place."""


class Member:
    """One segment of agents, and the pipe that wakes its worker."""

    def __init__(self, process: int, layout: Layout):
        self.process = process
        self.segment = Segment(layout)
        self.wake = queues.Pipe(queues.REPLY)
        self.groups = group_slices(layout.agents)
        self.started = time.monotonic()
        self._closing = threading.Lock()
        self._closed = False

    def reply(self, queue: int, groups: Collection[int]) -> None:
        """Tells the worker that `queue` has served `groups`. Does nothing once the member is closed."""
        with self._closing:  # a late reply must not go to another file that reuses the closed pipe's number
            if not self._closed:
                self.wake.put(np.array([(queue, group) for group in groups], queues.REPLY))

    def stuck_for(self) -> float:
        """Seconds that the slowest group has spent in its current environment step."""
        since = self.segment.busy_since.copy()  # the worker may set it to 0 at any moment
        since = since[since > 0]
        return time.monotonic() - float(since.min()) if len(since) else 0.0

    def leave(self) -> None:
        """Tells the worker to end. It receives no further replies."""
        with self._closing:
            self._closed = True
            self.wake.end()

    def close(self) -> None:
        """Frees the memory and the pipe."""
        self.leave()
        self.wake.close()
        self.segment.close()


def close_all(members: Collection[Member]) -> None:
    """Closes members. All of them are told first, so that their processes end at the same time."""
    for member in members:
        member.leave()
    for member in members:
        member.close()


def rollouts_that_wait(rollouts: int, agents: int, together: int) -> int:
    """The minimum number of waiting rollouts per agent with which `agents` can always fill a batch of `rollouts`.

    Each process has `together` agents in two groups, and the rollouts of a group are queued together. If batches are
    not made of whole groups, the previous one may have taken all but one of a group's rollouts. Those of large groups
    are queued in pieces, which mix, so that this may be so with each group.
    """
    group = -(-together // 2)
    in_pieces = group * queues.ROLLOUT.itemsize > queues.ATOMIC
    whole = together == 1 or (together % 2 == 0 and not in_pieces and rollouts % group == 0)
    taken = 0 if whole else agents if in_pieces else (together - 1) // 2
    return -(-(rollouts + taken) // agents)


class Local(Member):
    """Agents of a serial run. The worker lives in this process and its owner steps it."""

    def __init__(self, process: int, config: Config, layout: Layout, tasks: tuple[AuxiliaryTask, ...], outbox: Outbox):
        super().__init__(process, layout)
        self.worker = Worker(config, layout, tasks, process, self.segment, outbox)

    def start(self) -> None:
        """Resets the environments. Raises AgentFailure."""
        with self._failing():
            self.worker.start()

    def step(self) -> None:
        """Handles all waiting replies. Raises AgentFailure."""
        with self._failing():
            self.worker.handle(self.wake.get(1024, 0))

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except TaskError as error:
            raise TaskFailure(str(error)) from error
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # an environment can raise anything
            raise AgentFailure(f"{self.worker.config.env} failed: {place(error)}") from error

    def close(self) -> None:
        """Closes the environments too."""
        self.worker.close()
        super().close()


class Remote(Member):
    """Agents in a separate process, which waits for `start`.

    Attributes:
      failures: number of predecessors in a row that died right after their start.
      output: what the process has printed.
    """

    def __init__(self, process: int, config: Config, layout: Layout, outbox: Outbox, failures: int = 0):
        super().__init__(process, layout)
        self.failures = failures
        self.segment.busy_since[:] = self.started + _STARTING
        self._left = 0.0
        self._seen, self._since = -1, 0.0  # number of steps since when the process leaves replies unread
        self._looked = self._resumed = self.started
        self.output = Output()
        inherited = (self.segment.fd, self.wake.read_fd, *outbox.requests, outbox.rollouts, outbox.episodes)
        # Temporary files of environments, which a killed process cannot remove.
        self._folder = tempfile.TemporaryDirectory(prefix="gunreal-", ignore_cleanup_errors=True)
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = os.environ | threads | {"TMPDIR": self._folder.name}
        try:
            self.popen = subprocess.Popen(
                python("from gunreal.acting.process import main\nmain()"),
                stdin=subprocess.PIPE,
                stdout=self.output.fileno(),  # output of environments would garble the live display
                stderr=self.output.fileno(),
                pass_fds=inherited,
                env=environment,
                start_new_session=True,  # the server handles a terminal's Ctrl-C
            )
        except OSError:  # such as a limit of processes
            super().close()
            raise
        fds = self.segment.fd, self.wake.read_fd
        self._assignment = Assignment(config, layout, process, *fds, outbox, self._folder.name)

    def start(self) -> None:
        """Lets the agents begin. Requests of a process that is not in the pool are dropped, so add it before."""
        process_groups.tell(self.popen, self._assignment)

    def stuck_for(self) -> float:
        """Also the seconds that the process has left replies unread, as when it has been stopped by a signal.

        Time in which the whole run was stopped does not count if it was more than 10 s.
        """
        now = time.monotonic()
        if now - self._looked > _PAUSE:
            self._resumed = now
        self._looked = now
        seen = int(self.segment.end.sum()) if len(self.wake) and now > self.started + _STARTING else -1
        if seen != self._seen:
            self._seen, self._since = seen, now
        stuck = max(super().stuck_for(), now - self._since) if seen >= 0 else super().stuck_for()
        return min(stuck, now - self._resumed)

    def exited(self) -> bool:
        """Whether the process has ended. Whatever its environments have left running is killed then."""
        return process_groups.has_ended(self.popen)

    def kill(self) -> None:
        """Kills the process and everything that its environments have started."""
        process_groups.kill(self.popen)

    def leave(self) -> None:
        """Asks the process to close its environments and end."""
        super().leave()
        self._left = self._left or time.monotonic()

    def close(self) -> None:
        """Waits until one second after `leave`, then kills the process and frees its resources."""
        self.leave()
        process_groups.leave(self.popen, self._left)
        process_groups.close_input(self.popen)
        self.output.close()
        self._folder.cleanup()
        super().close()


class Pool:
    """All members, by process number. Numbers are never reused, so late messages of a dead process are dropped.

    With more agents, fewer rollouts of each may wait for the trainers, because rollouts grow old while they wait.

    Args:
      first: number of the first process.
      share: share of the agents whose rollouts must be able to fill a batch. A small share keeps the trainers busy
        while other agents start. A share of 1 keeps rollouts young.

    Attributes:
      next: number of the next process. Environments are seeded with it.
    """

    def __init__(self, rollouts: int, first: int = 0, share: float = 0.25) -> None:
        self._rollouts, self._share = rollouts, share
        self._members: dict[int, Member] = {}
        self.next = first
        self._lock = threading.Lock()

    def next_process(self) -> int:
        """A new process number."""
        with self._lock:
            self.next += 1
            return self.next - 1

    def add(self, member: Member) -> None:
        """Makes a member known to predictors and trainers."""
        with self._lock:
            self._members = {**self._members, member.process: member}
            self._allow()

    def remove(self, process: int) -> Member:
        """Removes a member. Its records that are still in a queue will be dropped."""
        with self._lock:
            members = dict(self._members)
            member = members.pop(process)
            self._members = members
            self._allow()
            return member

    def _allow(self) -> None:
        """Sets the allowance of all agents, and wakes those whose allowance has grown."""
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
        """The member, or None if it has been removed."""
        return self._members.get(process)

    def members(self) -> list[Member]:
        """A list of the current members, oldest first."""
        return list(self._members.values())

    def waited(self) -> dict[int, Waited]:
        """The waits for predictions so far, by process number."""
        return {member.process: member.segment.waits.total() for member in self.members()}
