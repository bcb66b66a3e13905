"""A serial run (`--runner serial`): the same parts in one thread in lockstep, bit-reproducible on the same machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gunreal.acting.pool import Local
from gunreal.acting.predictor import BasePredictor
from gunreal.config.derived import per_process
from gunreal.experience import queues
from gunreal.runtime import lockstep, memory, ram
from gunreal.runtime.base import Contents
from gunreal.runtime.system import System, SystemRunner, unfit
from gunreal.tasks.recorded import tasks_of_agents


class SerialRunner(SystemRunner):
    """Runs in rounds. A round steps all groups once, serves all requests and trains on every full batch."""

    def __init__(self, system: System):
        super().__init__(system)
        config = system.config
        memory.affordable(config, system.layout, system.tasks, system.memory_limit)
        tasks = tasks_of_agents(system.tasks, system.spec)
        self.members = [
            Local(system.pool.next_process(), config, system.layout, tasks, system.outbox)
            for _ in range(config.agents // per_process(config))
        ]
        for member in self.members:
            system.pool.add(member)
        self._is_whole = False  # whether the agents are between two rounds

    def run(self, tick: Callable[[], None]) -> None:
        """Runs until the system is stopped. `tick` is called between rounds, about ten times per second."""
        system = self.system
        if system.resumed:
            self._restore()
        else:
            for member in self.members:
                member.start()
            self._serve()
        self._is_whole, last = True, 0.0
        while not system.stopped_by:
            self._is_whole = False
            for member in self.members:
                member.step()
            self._serve()
            system.drain_episodes()
            self._is_whole = True
            if time.monotonic() - last >= 0.1:
                last = time.monotonic()
                tick()

    def _serve(self) -> None:
        """Serves all requests, then trains on all full batches. Afterward the next action of every group is ready."""
        system = self.system
        for name, pipe in system.requests.items():
            while len(records := pipe.get(system.groups_at_once, 0)):
                system.predict(name, records)
        while (batch := system.batcher.next(0)) is not None:
            system.trainer.work(batch)

    def memory_in_use(self) -> int:
        """Number of bytes that the run uses."""
        return ram.in_use([os.getpid()])

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""
        system, agents = self.system, len(self.members) * self.system.layout.agents
        return system.metrics.snapshot(*system.gauges(agents, 1, 1, self.memory_in_use()))

    def contents(self) -> Contents:
        """What an exact resume needs: the rings, the agents and everything that is waiting.

        After an error in mid-round, the agents cannot be saved.
        """
        system, found = self.system, super().contents()
        if not self._is_whole:
            return found._replace(goes_on=False)
        base = system.predictors["base"]
        assert isinstance(base, BasePredictor)
        system.batcher.collect()
        waiting = [(member.process, agent, first) for member, agent, first in system.batcher.waiting]
        replies = [member.wake.get(1024, 0) for member in self.members]
        for member, records in zip(self.members, replies, strict=True):
            member.wake.put(records)
        blob = lockstep.pack(
            {
                "workers": [member.worker.get_state() for member in self.members],
                "replies": replies,
                "waiting": np.array(waiting, queues.ROLLOUT),
                "rng": base.rng,
            }
        )
        rings = {
            f"ring{member.process}/{name}": array
            for member in self.members
            for name, array in member.segment.arrays.items()
        }
        return found._replace(state=found.state | rings, blobs={"serial": blob})

    def _restore(self) -> None:
        system = self.system
        assert system.resumed is not None
        base = system.predictors["base"]
        assert isinstance(base, BasePredictor)
        saved = lockstep.unpack(system.resumed.blobs["serial"])
        base.rng = saved["rng"]
        for member, worker, replies in zip(self.members, saved["workers"], saved["replies"], strict=True):
            for name, array in member.segment.arrays.items():
                if name == "allowance":
                    continue  # it follows from the budget, which may have been raised
                ring = system.resumed.state.get(f"ring{member.process}/{name}")
                if ring is None or ring.shape != array.shape:
                    raise unfit(system.resumed, f"{name} has another shape")
                array[...] = ring
            member.worker.set_state(worker)
            member.wake.put(replies)
        system.batcher.add(saved["waiting"])
