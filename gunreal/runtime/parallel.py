"""A parallel run: supervised agent processes, crews of predictors and trainers, and the scheduler."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

from gunreal.acting.pool import Remote, TaskFailure, close_all
from gunreal.acting.process import EXIT_BAD_INPUT, EXIT_TASK_ERROR
from gunreal.config.derived import per_process
from gunreal.config.schema import ConfigError
from gunreal.config.warning import warn
from gunreal.envs.step import AgentFailure
from gunreal.runtime import memory, scheduler
from gunreal.runtime.base import Contents
from gunreal.runtime.crew import Crew
from gunreal.runtime.scheduler import Counts
from gunreal.runtime.steering import Steering, memory_in_use
from gunreal.runtime.system import System, SystemRunner

_YOUNG = 20.0  # seconds; a process that dies earlier, or before its first rollout, counts as an early failure
# Open files per agent process: its memory (two, because mmap duplicates the descriptor), both ends of its wake pipe,
# its input, its error output.
_FILES = 6
_OTHER_FILES = 256  # open files for checkpoints, logs, libraries, and processes that are restarted
_FAILURES = 3  # early failures in a row after which the run gives up
_STARTS_FROM = ("agents", "agents_per_process", "predictors", "trainers")  # fields that give the first counts
_GIVE_WAY = 5  # nice value of predictors if training takes the most work; rollouts would otherwise wait and grow old


class ParallelRunner(SystemRunner):
    """Runs agents in separate processes and serves them with threads of this process."""

    def __init__(self, system: System):
        super().__init__(system)
        config = system.config
        self.crews = {name: self._prediction_crew(name) for name in system.requests}
        self.trainers = Crew(
            "trainer",
            system.batcher.next,
            system.trainer.work,
            system.fail,
            at_once=system.at_once + 1,  # one trainer prepares its batch; more would use memory and age rollouts
        )
        self.counts = Counts(config.agents // per_process(config), config.predictors, config.trainers)
        policy = self._make_policy()
        self._steering = Steering(system, self.crews["base"], self.trainers, policy) if policy else None
        self._bounded = False  # whether a limit of the system has kept the scheduler from starting processes
        if policy and system.resumed:
            self._resume(policy, system.resumed.extra)

    def _resume(self, policy: scheduler.Scheduler, saved: Mapping[str, Any]) -> None:
        """Lets the scheduler go on, unless it is another one or the user has changed a number it starts from."""
        config, found = self.system.config, saved.get("scheduler")
        if not found or found["kind"] != config.scheduler:
            return
        if all(getattr(config, name) == saved["config"][name] for name in _STARTS_FROM):
            self.counts = Counts(*found["counts"])
            policy.set_state(found["state"])

    def _make_policy(self) -> scheduler.Scheduler | None:
        config = self.system.config
        if config.scheduler == "off":
            return None
        return scheduler.Annealing(config.seed) if config.scheduler == "annealing" else scheduler.Balancing()

    def _prediction_crew(self, name: str) -> Crew:
        system = self.system
        pipe = system.requests[name]
        return Crew(
            name,
            lambda timeout: pipe.get(system.groups_at_once, timeout),
            lambda records: system.predict(name, records),
            system.fail,
            nice=_GIVE_WAY if system.config.tasks else 0,
        )

    def run(self, tick: Callable[[], None]) -> None:
        """Runs until the system is stopped. `tick` is called about ten times per second."""
        self._start_affordable()
        self.system.warm_up()  # while the agent processes start
        for crew in self.crews.values():
            crew.resize(self.counts.predictors)
        self.trainers.resize(self.counts.trainers)
        try:
            while not self.system.stopped_by:
                time.sleep(0.1)
                if self.system.stopped_by:  # the signal may have ended the agents too
                    break
                self._supervise()
                if self._steering and (counts := self._steering.tick(self.counts, self.remotes())):
                    self.apply(counts)
                    self._steering.begin()
                self.system.drain_episodes()
                tick()
        finally:
            self._stop_threads()

    def _stop_threads(self) -> None:
        for crew in [*self.crews.values(), self.trainers]:
            crew.resize(0)
        for crew in [*self.crews.values(), self.trainers]:
            crew.stop()

    def _start_affordable(self) -> None:
        """Starts as many of the agent processes as fit into the memory bound with full rings."""
        system, agents = self.system, self.system.layout.agents
        affordable = memory.affordable(system.config, system.layout, system.tasks, system.memory_limit)
        if affordable < self.counts.processes:
            wanted = self.counts.processes * agents
            warn(f"started only {affordable * agents} of {wanted} agents, because more would exceed the memory limit")
            self.counts = self.counts._replace(processes=affordable)
        allow_open_files(self.counts.processes)
        for _ in range(self.counts.processes):
            self._start_process()

    def _start_process(self, failures: int = 0) -> None:
        system = self.system
        try:
            remote = Remote(system.pool.next_process(), system.config, system.layout, system.outbox, failures)
        except OSError as error:  # such as a limit of processes
            raise AgentFailure(
                f"cannot start an agent process: {error}; use fewer --agents, or raise the limit"
            ) from error
        system.pool.add(remote)
        remote.start()

    def remotes(self) -> list[Remote]:
        """The agent processes, oldest first."""
        return [member for member in self.system.pool.members() if isinstance(member, Remote)]

    def _supervise(self) -> None:
        """Restarts agent processes that have died or hang. Gives up if one keeps dying right after its start."""
        timeout = self.system.config.env_timeout
        for remote in self.remotes():
            if remote.exited():
                self._restart(remote, f"ended with code {remote.popen.returncode}")
            elif remote.stuck_for() > timeout:
                remote.kill()
                self._restart(remote, f"did not finish a step within {timeout:g} s")
            else:
                remote.output.pass_on_warnings()

    def _restart(self, remote: Remote, why: str) -> None:
        system = self.system
        age = time.monotonic() - remote.started
        at_once = age < _YOUNG or remote.segment.end.min() < system.spec.t_max
        failures = remote.failures + 1 if at_once else 0
        report, errors = f"agent process {remote.process} {why}", remote.output.last()
        system.pool.remove(remote.process).close()
        if remote.popen.returncode == EXIT_BAD_INPUT:
            raise ConfigError(errors.rpartition("\n")[2])  # what came before is output of its environments
        if remote.popen.returncode == EXIT_TASK_ERROR:
            raise TaskFailure(errors.rpartition("\n")[2])  # a new process would fail in the same way
        if failures >= _FAILURES:
            raise AgentFailure(f"{report}, {_FAILURES} times in a row soon after its start:\n{errors}")
        warn(f"{report}; restarting it with empty replay" + (f":\n{errors}" if errors else ""))
        system.metrics.restarted()
        self._start_process(failures)

    def apply(self, counts: Counts) -> None:
        """Starts and stops processes and threads to reach `counts`, or fewer processes if the system allows no more."""
        new, before = counts.processes - self.counts.processes, len(self.remotes())
        if new > 0:
            try:
                allow_open_files(new)
                for _ in range(new):
                    self._start_process()
            except (ConfigError, AgentFailure) as error:  # no reason to end the run
                if not self._bounded:
                    warn(f"the scheduler starts no more agents: {error}")
                started = len(self.remotes()) - before
                self._bounded, counts = True, counts._replace(processes=self.counts.processes + started)
        close_all([self.system.pool.remove(remote.process) for remote in self.remotes()[counts.processes :]])
        for crew in self.crews.values():
            crew.resize(counts.predictors)
        self.trainers.resize(counts.trainers)
        self.counts = counts

    def memory_in_use(self) -> int:
        """Number of bytes used by all processes of the run."""
        return memory_in_use(self.remotes())

    def gauges(self) -> tuple[dict[str, Any], dict[str, int]]:
        """The present state of the run, as `RunMetrics.snapshot` takes it."""
        agents = self.counts.processes * self.system.layout.agents
        return self.system.gauges(agents, self.counts.predictors, self.counts.trainers, self.memory_in_use())

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""
        return self.system.metrics.snapshot(*self.gauges())

    def contents(self) -> Contents:
        """What a checkpoint contains. After a resume, agents start again with empty replay."""
        found = super().contents()
        scheduler = self._steering.get_state(self.counts) if self._steering else None
        return found._replace(extra={**found.extra, "scheduler": scheduler})


def allow_open_files(processes: int) -> None:
    """Raises this process's soft limit of open files to what so many agent processes take.

    Raises:
      ConfigError: the hard limit is below that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + _FILES * processes + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"{processes} agent processes need {needed} open files, and the limit is {hard}; raise it (ulimit -n), or "
            "use fewer --agents or more --agents_per_process"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
