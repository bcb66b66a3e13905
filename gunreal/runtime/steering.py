"""Feeds the scheduler: observes a parallel run, asks what to change, and lets a change settle before it is judged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.acting.pool import Remote
from gunreal.runtime import memory, scheduler
from gunreal.runtime.scheduler import Observation

if TYPE_CHECKING:
    from gunreal.runtime.parallel import ParallelRun


class Steering:
    """One policy and the interval that it is to judge."""

    def __init__(self, run: ParallelRun, policy: scheduler.Scheduler):
        self._run, self.policy = run, policy
        self._start()

    def _start(self) -> None:
        """Begins an interval."""
        self._since, self._trained = time.monotonic(), self._run.system.metrics.steps_trained
        self._requests: list[int] = []
        self._blocked: list[float] = []
        self._run.crews["base"].idle_share()
        self._run.trainers.idle_share()

    def tick(self) -> None:
        """Called about ten times a second."""
        run, config = self._run, self._run.system.config
        remotes = run.remotes()
        if any(remote.segment.end.min() < config.t_max for remote in remotes):
            self._start()  # a process that is still starting would be held against the counts
            return
        self._requests.append(len(run.system.requests["base"]))
        self._blocked.append(float(np.mean([blocked_share(remote, config.run_ahead) for remote in remotes])))
        if time.monotonic() - self._since >= config.scheduler_seconds:
            run.apply(self.policy.propose(run.counts, self._observe(remotes)))
            self._start()

    def _observe(self, remotes: list[Remote]) -> Observation:
        run, system = self._run, self._run.system
        return Observation(
            frames_per_second=(system.metrics.steps_trained - self._trained) / (time.monotonic() - self._since),
            requests=float(np.mean(self._requests)),
            predictor_idle=run.crews["base"].idle_share(),
            trainer_idle=run.trainers.idle_share(),
            blocked=float(np.mean(self._blocked)),
            memory=run.memory_in_use() + memory.unwritten(remote.segment.fd for remote in remotes),
            memory_limit=system.memory_limit,
            memory_per_process=system.layout.nbytes() + max(memory.own(remote.popen.pid) for remote in remotes),
        )

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"kind": self._run.system.config.scheduler, "counts": self._run.counts, "state": self.policy.get_state()}


def blocked_share(remote: Remote, run_ahead: int) -> float:
    """Share of a process's agents that wait until the trainers have taken what they gave."""
    segment = remote.segment
    t_max = segment.layout.spec.t_max
    in_flight = segment.end // t_max - segment.trained
    ahead = segment.end % t_max
    return float(np.mean((in_flight >= segment.allowance) & (ahead >= min(run_ahead, t_max - 1))))
