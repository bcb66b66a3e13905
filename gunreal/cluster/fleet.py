"""The nodes of a run: how they are started, monitored and replaced."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from typing import Any

import psutil

from gunreal.acting.pool import TaskFailure
from gunreal.cluster.engine import LONGEST_STEP, Engine, Machine, in_one_line
from gunreal.cluster.node import Assignment, Description, Node, node_fields
from gunreal.cluster.reducer import Refused
from gunreal.config.schema import Config, ConfigError, is_auto
from gunreal.config.version import VERSION
from gunreal.config.warning import warn
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec

_LOOK = 0.5  # seconds between looks at the machines and the nodes' signs of life
_CALLS = 3  # a gradient, a sign of life, and the end
_SILENCE = 3.0  # seconds without a sign of life after which the machine is asked whether the process is stopped
_STARTING = 120.0  # seconds until a node must have started: loading a framework blocks its answers
_LONGEST_PAUSE = 120.0  # seconds. TCP's pauses between attempts double, so the last one may be as long as a cut
_FAILURES = 3  # failures in a row before a first gradient after which the run gives up
_LONGEST_DELAY = 60.0  # seconds before a node that keeps failing is started again


@dataclasses.dataclass(eq=False)
class Member:
    """A node as the coordinator sees it.

    Attributes:
      slot: number of its place among the nodes. A node that replaces it has the same one.
      sharing: number of nodes among which its machine was divided when it started. It keeps its share of the memory.
      share: number of GPUs that it has, such as 0.5.
      pending: reference to the result that it computes: its description or an answer.
      slices: references to the slices of the gradient that belongs to the answer.
      description: what it reported after its start. None while it starts.
      version: version of the weights with which it computes.
      sent: time at which these weights were sent.
      took: seconds that its last gradient took.
      answers: number of answers so far.
      gauges: its newest gauges and queue lengths.
      life: reference to its next sign of life.
      silent: seconds without a sign of life.
      stopped: reference to whether its process is stopped, if its machine has been asked since then.
      cut: seconds for which the network to its machine was cut, since its last sign of life.
    """

    slot: int
    machine: Machine
    sharing: int
    share: float
    actor: Any
    pending: Any
    slices: list[Any] = dataclasses.field(default_factory=list)
    description: Description | None = None
    version: int = -1
    sent: float = 0.0
    took: float = 0.0
    answers: int = 0
    gauges: Any = None
    life: Any = None
    silent: float = 0.0
    stopped: Any = None
    cut: float = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the network to its machine has been cut. The node continues when the network is back."""
        return self.cut > 0

    def answered(self) -> None:
        """Records a sign of life."""
        self.silent, self.cut, self.stopped = 0.0, 0.0, None


class Fleet:
    """All nodes of a run.

    Args:
      serial: number of the first node. Numbers are not used twice, because seeds depend on them.
      kind: class of the nodes, with the methods of `Node`.

    Attributes:
      members: the nodes by slot.
      replaced: number of nodes that have replaced another one.
    """

    def __init__(self, engine: Engine, config: Config, spec: Spec, serial: int, kind: type = Node):
        self._engine, self._ray, self._config, self._spec = engine, engine.ray, config, spec
        self._kind = kind
        self.members: dict[int, Member] = {}
        self.serial, self.replaced = serial, 0
        self._refused: dict[str, str] = {}
        self._failures: dict[int, int] = {}
        self._retry: dict[int, float] = {}
        self._seen: set[int] = set()
        self._looked = 0.0
        self._machines: list[Machine] = []

    def ready(self) -> list[Member]:
        """The nodes that have started and can be reached, by slot."""
        found = [member for _, member in sorted(self.members.items())]
        return [member for member in found if member.description and not member.is_away]

    def look(self) -> None:
        """Starts missing nodes and asks all nodes for a sign of life, at most twice per second."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        passed, self._looked = min(now - self._looked, LONGEST_STEP), now
        self._machines = [machine for machine in self._engine.machines() if machine.id not in self._refused]
        self._seat(now)
        for member in list(self.members.values()):
            self._check_life(member, passed)

    def _seat(self, now: float) -> None:
        """Starts the nodes that are missing, in the first free slots. Slots are numbered over the machines in turn."""
        wanted = len(self._machines) if is_auto(self._config, "nodes") else self._config.nodes
        taken = [member.machine.id for member in self.members.values()]
        # Slots need not be consecutive, because machines may leave.
        free = (slot for slot in itertools.count() if slot not in self.members)
        for slot in itertools.islice(free, max(0, wanted - len(self.members))):
            if now < self._retry.get(slot, 0.0) or not self._machines:
                continue
            sharing = -(-wanted // len(self._machines))
            # The nodes of a machine may hold all of its memory and GPUs, if the others were on machines that have left.
            if not (fitting := [machine for machine in self._machines if self._has_room(machine, sharing)]):
                return
            machine = min(fitting, key=lambda machine: taken.count(machine.id))
            taken.append(machine.id)
            self._start(slot, machine, sharing)

    def _has_room(self, machine: Machine, sharing: int) -> bool:
        there = [member for member in self.members.values() if member.machine.id == machine.id]
        gpus = sum(member.share for member in there) + _share(machine, sharing)
        memory = sum(1 / member.sharing for member in there) + 1 / sharing
        return gpus <= machine.gpus + 1e-6 and memory <= 1 + 1e-6

    def _start(self, slot: int, machine: Machine, sharing: int) -> None:
        share = _share(machine, sharing)
        actor = self._engine.actor(self._kind, machine=machine, share=share, calls=_CALLS)
        fields = node_fields(self._config, self.serial)
        assignment = Assignment(VERSION, fields, self._spec, self._config.seed, sharing)
        self.serial += 1
        self.replaced += slot in self._seen
        self._seen.add(slot)
        self.members[slot] = Member(slot, machine, sharing, share, actor, actor.start.remote(assignment))

    def _check_life(self, member: Member, passed: float) -> None:
        if member.life is None:
            member.life = member.actor.gauges.remote()
        ready, _ = self._ray.wait([member.life], timeout=0)
        if ready:
            life, member.life = member.life, None
            member.answered()
            try:
                member.gauges = self._ray.get(life) or member.gauges
            except self._ray.exceptions.ActorUnavailableError:
                member.silent = _LOOK  # the connection is cut for the moment
            except self._ray.exceptions.RayError as error:
                self.lost(member, error)
            return
        member.silent += passed
        # It compiles before its first answer, and may be silent meanwhile on a busy machine.
        patience = self._config.node_timeout if member.answers else max(_STARTING, self._config.node_timeout)
        if (member.is_away or member.silent > patience) and self._is_cut_off(member):
            member.cut += member.silent
            member.silent = 0.0
        patience += min(member.cut, _LONGEST_PAUSE)
        if member.silent > patience:
            self.lost(member, TimeoutError(f"it gave no sign of life for {patience:g} s"))
        elif member.description and member.silent > _SILENCE and self._is_stopped(member, member.description.pid):
            self.lost(member, TimeoutError("its process is stopped"))

    def _is_stopped(self, member: Member, pid: int) -> bool:
        """Whether a silent node's process is stopped, and not only busy. False until its machine has answered."""
        if member.stopped is None:
            member.stopped = self._engine.call(is_stopped, pid, machine=member.machine)
        ready, _ = self._ray.wait([member.stopped], timeout=0)
        if not ready:
            return False
        answer, member.stopped = member.stopped, None
        try:
            return bool(self._ray.get(answer))
        except self._ray.exceptions.RayError:  # the machine is lost, too
            return False

    def _is_cut_off(self, member: Member) -> bool:
        is_away = not self._engine.reaches(member.machine)
        if is_away and not member.is_away:
            text = "the network to it is cut; training goes on, and it may come back"
            warn(f"node {member.slot} on {member.machine.host} is away: {text}")
        return is_away

    def wait(self, seconds: float) -> Iterator[Member]:
        """Waits for something that is pending, and yields the nodes that have finished it."""
        pending = {member.pending: member for member in self.members.values() if member.pending is not None}
        if not pending:
            time.sleep(min(seconds, 0.05))
            return
        ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=seconds)
        if ready and len(pending) > 1:
            ready, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=0)
        for ref in ready:
            yield pending[ref]

    def result(self, member: Member) -> Any:
        """The result that a node has finished. None if it failed, in which case it is given up."""
        ref, member.pending = member.pending, None
        try:
            found = self._ray.get(ref)
            member.answered()  # a gradient or the end of a long start is a sign of life, too
            return found
        except self._ray.exceptions.RayTaskError as error:
            self.lost(member, error.cause if isinstance(error.cause, Exception) else error)
        except self._ray.exceptions.RayError as error:
            self.lost(member, error)
        return None

    def recall(self, version: int) -> None:
        """Forgets calls whose weights do not exist, because their step failed. Ray does not run such calls."""
        for member in self.members.values():
            if member.description and member.pending is not None and member.version == version:
                member.pending, member.slices = None, []

    def lost(self, member: Member, error: BaseException) -> None:
        """Gives up a node. Another one replaces it, after a delay if nodes keep failing there.

        Raises:
          ConfigError: no machine can take part.
          AgentFailure: nodes keep failing, and there is no other node, or a task fails.
        """
        if self.members.get(member.slot) is not member:
            return
        del self.members[member.slot]
        self._engine.kill(member.actor)
        if isinstance(error, TaskFailure):  # it would fail on every machine
            raise TaskFailure(str(error))
        slot, host, text = member.slot, member.machine.host, in_one_line(error)
        if isinstance(error, Refused | ConfigError):
            self._refused[member.machine.id] = text
            if not [m for m in self._engine.machines() if m.id not in self._refused]:
                raise ConfigError(text)
            warn(f"machine {host} takes no part: {text}")
            return
        failures = 0 if member.answers else self._failures.get(slot, 0) + 1
        self._failures[slot] = failures
        if failures >= _FAILURES and not self.ready():
            raise AgentFailure(f"node {slot} on {host} failed {failures} times in a row: {text}")
        self._retry[slot] = time.monotonic() + (min(2.0**failures, _LONGEST_DELAY) if failures else 0.0)
        again = f"; it failed {failures} times in a row, so check the disk and Ray's logs there" if failures > 1 else ""
        warn(f"node {slot} on {host} is lost ({text}); training goes on, and another takes its place{again}")

    def close(self) -> None:
        """Ends all nodes and their agents."""
        leaving = [member.actor.stop.remote() for member in self.ready()]
        if leaving:
            self._ray.wait(leaving, num_returns=len(leaving), timeout=3.0)
        for member in self.members.values():
            if not self._engine.is_lost:
                self._engine.kill(member.actor)
        self.members.clear()


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped, as by SIGSTOP."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _share(machine: Machine, sharing: int) -> float:
    """The number of GPUs of each node if `sharing` nodes share a machine: at most one, and part of one if they must.

    Ray takes a part from a single GPU. Three nodes on two GPUs therefore have half a GPU each.
    """
    return 1 / -(-sharing // int(machine.gpus)) if 0 < machine.gpus < sharing else min(machine.gpus, 1)
