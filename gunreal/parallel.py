"""A parallel run: agent processes that are watched and restarted, crews of predictors and trainers, and the scheduler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from gunreal import memory, scheduler
from gunreal.config import ConfigError, per_process
from gunreal.crew import Crew
from gunreal.pool import Remote
from gunreal.scheduler import Counts, Observation
from gunreal.system import System, warn

_YOUNG = 20.0  # seconds; a process that dies younger counts as failing at once
_FAILURES = 3  # in a row, after which the run gives up


class ParallelRun:
    """Runs agents in processes of their own and serves them from threads of this one."""

    def __init__(self, system: System):
        self.system = system
        config = system.config
        self.crews = {name: self._prediction_crew(name) for name in system.requests}
        trainer = system.trainer
        self.trainers = Crew("trainer", trainer.fetch, trainer.work, system.fail)
        self.counts = Counts(config.agents // per_process(config), config.predictors, config.trainers)
        self._failures = 0
        self._scheduled = time.monotonic()
        self._trained_before = 0
        self._requests_seen: list[int] = []
        self._blocked_seen: list[float] = []
        self._scheduler = self._make_scheduler()
        if system.resumed and system.resumed.extra.get("scheduler"):
            saved = system.resumed.extra["scheduler"]
            if saved["kind"] == config.scheduler and self._scheduler:
                self.counts = Counts(*saved["counts"])
                self._scheduler.set_state(saved["state"])

    def _make_scheduler(self) -> scheduler.Scheduler | None:
        config = self.system.config
        return {"annealing": lambda: scheduler.Annealing(config.seed), "queue": scheduler.Queue, "off": lambda: None}[
            config.scheduler
        ]()

    def _prediction_crew(self, name: str) -> Crew:
        system = self.system
        pipe = system.requests[name]
        groups = max(1, system.config.max_batch * 2 // system.layout.agents)  # requests whose observations fit the batch
        return Crew(name, lambda timeout: pipe.get(groups, timeout), lambda records: system.predict(name, records), system.fail)

    def run(self, tick: Callable[[], None]) -> None:
        """Goes on until the system is stopped; `tick` is called about ten times a second."""
        self._start_affordable()
        for crew in self.crews.values():
            crew.resize(self.counts.predictors)
        self.trainers.resize(self.counts.trainers)
        try:
            while not self.system.stopped.wait(0.1):
                self._supervise()
                self._sample()
                if self._scheduler and time.monotonic() - self._scheduled >= self.system.config.scheduler_seconds:
                    self._schedule(self._scheduler)
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
        """Starts the agent processes, as far as their full rings stay within the memory bound."""
        system = self.system
        ring = system.layout.nbytes()
        bound = scheduler.MEMORY_SHARE * system.memory_limit
        before = memory.in_use([os.getpid()])
        for index in range(self.counts.processes):
            if before + (index + 1) * ring > bound:
                if index == 0:
                    raise ConfigError(
                        f"the memory limit of {system.memory_limit / 2**20:.0f} MiB leaves no room for one agent process: "
                        f"the server takes {before / 2**20:.0f} MiB and {system.layout.agents} agents {ring / 2**20:.0f} MiB; "
                        "raise --memory_limit or lower --replay_size or --agents_per_process"
                    )
                warn(
                    f"started {index * system.layout.agents} of {system.config.agents} agents: more would cross the memory limit"
                )
                self.counts = self.counts._replace(processes=index)
                break
            self._start_process()

    def _start_process(self) -> None:
        system = self.system
        system.pool.add(Remote(system.pool.next_process(), system.config, system.layout, system.outbox))

    def remotes(self) -> list[Remote]:
        """The agent processes, oldest first."""
        return [member for member in self.system.pool.members() if isinstance(member, Remote)]

    def _supervise(self) -> None:
        """Restarts agent processes that have died or hang; gives up when they die at once again and again."""
        system = self.system
        for remote in self.remotes():
            hangs = remote.stuck_for() > system.config.env_timeout
            if not remote.exited() and not hangs:
                if time.monotonic() - remote.started > _YOUNG:
                    self._failures = 0
                continue
            young = time.monotonic() - remote.started < _YOUNG
            self._failures = self._failures + 1 if young else 0
            if hangs:
                remote.kill()
            why = f"made no step for {system.config.env_timeout:g} s" if hangs else f"ended with code {remote.popen.returncode}"
            report = f"agent process {remote.process} {why}"
            errors = remote.errors()
            system.pool.remove(remote.process).close()
            if self._failures >= _FAILURES:
                raise AgentFailure(f"{report}, {_FAILURES} times in a row soon after its start:\n{errors}")
            warn(f"{report}; restarting it with empty replay" + (f":\n{errors}" if errors else ""))
            system.metrics.restarted()
            self._start_process()

    def _sample(self) -> None:
        self._requests_seen.append(len(self.system.requests["base"]))
        self._blocked_seen.append(self._blocked_share())

    def _blocked_share(self) -> float:
        """Share of the agents that have as many rollouts in the training queue as they may."""
        waiting = len(self.system.rollouts) + len(self.system.batcher.waiting)
        agents = max(1, self.counts.processes * self.system.layout.agents)
        return min(1.0, waiting / (agents * self.system.layout.slots))

    def _schedule(self, policy: scheduler.Scheduler) -> None:
        system, remotes = self.system, self.remotes()
        now = time.monotonic()
        trained = system.metrics.steps_trained
        per_process_bytes = [memory.own(remote.popen.pid) for remote in remotes]
        observation = Observation(
            frames_per_second=(trained - self._trained_before) / (now - self._scheduled),
            requests=sum(self._requests_seen) / max(1, len(self._requests_seen)),
            predictor_idle=self.crews["base"].idle_share(),
            trainer_idle=self.trainers.idle_share(),
            blocked=sum(self._blocked_seen) / max(1, len(self._blocked_seen)),
            memory=self.memory_in_use() + memory.unwritten(remote.segment.fd for remote in remotes),
            memory_limit=system.memory_limit,
            memory_per_process=system.layout.nbytes() + max(per_process_bytes, default=0),
        )
        self._requests_seen, self._blocked_seen = [], []
        self.apply(policy.propose(self.counts, observation))
        self._trained_before, self._scheduled = system.metrics.steps_trained, time.monotonic()

    def apply(self, counts: Counts) -> None:
        """Starts and stops processes and threads until there are `counts` of them."""
        for _ in range(counts.processes - self.counts.processes):
            self._start_process()
        for remote in self.remotes()[counts.processes :]:
            self.system.pool.remove(remote.process).close()
        for crew in self.crews.values():
            crew.resize(counts.predictors)
        self.trainers.resize(counts.trainers)
        self.counts = counts

    def memory_in_use(self) -> int:
        """Bytes that all processes of the run use together."""
        return memory.in_use([os.getpid(), *(remote.popen.pid for remote in self.remotes())])

    def save(self) -> None:
        """A checkpoint; agents start anew, with empty replay, when it is resumed."""
        state: dict[str, Any] | None = None
        if self._scheduler:
            state = {"kind": self.system.config.scheduler, "counts": self.counts, "state": self._scheduler.get_state()}
        self.system.save(scheduler=state)


class AgentFailure(RuntimeError):
    """Agent processes die at once, again and again; the message ends with the environment's own traceback."""

