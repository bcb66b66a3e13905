"""Connects the scheduler to a parallel run: observes intervals and waits for changes to settle before judging them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from gunreal.acting.pool import Remote
from gunreal.runtime import ram, scheduler
from gunreal.runtime.crew import Crew
from gunreal.runtime.scheduler import Counts, Observation
from gunreal.runtime.system import System


class Steering:
    """One scheduler and the interval it will judge. `predictors` are those of the base queue."""

    def __init__(self, system: System, predictors: Crew, trainers: Crew, policy: scheduler.Scheduler):
        self._system, self._predictors, self._trainers, self.policy = system, predictors, trainers, policy
        self.begin()

    def begin(self) -> None:
        """Starts an interval."""
        self._since, self._trained = time.monotonic(), self._system.metrics.steps_trained
        self._requests: list[int] = []
        self._blocked: list[float] = []
        self._predictors.idle_share()
        self._trainers.idle_share()

    def tick(self, counts: Counts, remotes: list[Remote]) -> Counts | None:
        """Called about ten times per second. Returns new counts at the end of an interval, otherwise None.

        The caller applies the counts and then calls `begin`.
        """
        config = self._system.config
        if any(remote.segment.end.min() < config.t_max for remote in remotes):
            self.begin()  # a process that is still starting would distort the measurement
            return None
        self._requests.append(len(self._system.requests["base"]))
        self._blocked.append(float(np.mean([blocked_share(remote, config.run_ahead) for remote in remotes])))
        if time.monotonic() - self._since < config.scheduler_seconds:
            return None
        return self.policy.propose(counts, self._observe(remotes))

    def _observe(self, remotes: list[Remote]) -> Observation:
        system = self._system
        return Observation(
            frames_per_second=(system.metrics.steps_trained - self._trained) / (time.monotonic() - self._since),
            requests=float(np.mean(self._requests)),
            predictor_idle=self._predictors.idle_share(),
            trainer_idle=self._trainers.idle_share(),
            blocked=float(np.mean(self._blocked)),
            memory=memory_in_use(remotes) + ram.unwritten(remote.segment.fd for remote in remotes),
            memory_limit=system.memory_limit,
            memory_per_process=system.layout.nbytes() + max(ram.own(remote.popen.pid) for remote in remotes),
        )

    def get_state(self, counts: Counts) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        return {"kind": self._system.config.scheduler, "counts": counts, "state": self.policy.get_state()}


def memory_in_use(remotes: Iterable[Remote]) -> int:
    """Number of bytes that this process and the agent processes use together."""
    return ram.in_use([os.getpid(), *(remote.popen.pid for remote in remotes)])


def blocked_share(remote: Remote, run_ahead: int) -> float:
    """Share of a process's agents that wait for the trainers to take their rollouts."""
    segment = remote.segment
    t_max = segment.layout.spec.t_max
    in_flight = segment.end // t_max - segment.trained
    ahead = segment.end % t_max
    if run_ahead >= t_max:  # an agent may finish one rollout beyond the allowance before it pauses
        return float(np.mean((in_flight > segment.allowance) & (ahead == 0)))
    return float(np.mean((in_flight >= segment.allowance) & (ahead >= run_ahead)))
