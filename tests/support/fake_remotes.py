"""A parallel run of agent processes that do what a test says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from gunreal.acting.pool import Pool
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.spec import Spec
from gunreal.records.metrics import RunMetrics
from gunreal.runtime.parallel import ParallelRunner

MIB = 2**20


class FakeRemote:
    """An agent process that does what a test says."""

    def __init__(self, process, config, layout, outbox, failures=0):
        self.process, self.failures, self.started = process, failures, 0.0
        self.segment = SimpleNamespace(
            end=np.zeros(2, np.int64), layout=SimpleNamespace(agents=2, slots=1), allowance=1
        )
        self.popen = SimpleNamespace(returncode=None, pid=1)
        self.log = []  # what was done to it
        self.output = SimpleNamespace(
            last=lambda: "Traceback: it hurts", pass_on_warnings=lambda: self.log.append("pass on warnings")
        )

    def exited(self):
        return self.popen.returncode is not None

    def stuck_for(self):
        return 0.0

    def start(self):
        self.log.append("start")

    def leave(self):
        pass

    def close(self):
        pass


def make_run(memory_limit=100_000 * MIB, resumed=None, **options):
    """A run of three processes with two agents each. Most of its other parts are missing."""
    config = resolved(Config(agents=6, agents_per_process=2, env_timeout=30, t_max=5, **options))
    spec = Spec((3,), 1, "float32", 3, t_max=5)
    system = SimpleNamespace(
        config=config,
        spec=spec,
        tasks=(),
        layout=SimpleNamespace(agents=2, nbytes=lambda: 50 * MIB, spec=spec, replay_size=0),
        requests={"base": None, "pc": None},
        batcher=SimpleNamespace(next=None),
        trainer=SimpleNamespace(work=None),
        at_once=2,
        resumed=resumed,
        pool=Pool(rollouts=4),
        metrics=RunMetrics(),
        memory_limit=memory_limit,
        outbox=None,
        fail=None,
        stopped_by="",
        warm_up=lambda: None,
        drain_episodes=lambda: None,
        learner=SimpleNamespace(get_state=dict),
    )
    return ParallelRunner(system)
