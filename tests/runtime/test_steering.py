from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import Bench

from gunreal.config.schema import Config
from gunreal.runtime import ram, steering
from gunreal.runtime.scheduler import Counts, Observation
from gunreal.runtime.steering import Steering, blocked_share


@pytest.mark.parametrize("run_ahead", [0, 1, 3, 4, 9])
def test_blocked_agents_are_those_that_do_not_step(run_ahead):
    """In rollouts of 4 steps, whatever an agent may do beyond what the trainers have taken."""
    seen = set()
    with Bench("~", agents=2, t_max=4, min_batch=8, run_ahead=run_ahead).start() as bench:
        (member,) = bench.members
        for turn in range(80):
            share, before = blocked_share(member, run_ahead), member.segment.end.copy()
            bench.step(train=False)
            assert share == np.mean(member.segment.end == before), (turn, before)
            seen.add(share)
            if turn % 11 == 10 and (batch := bench.batcher.next(0)):
                batch.release()
    assert seen == {0.0, 1.0}


def remote(step):
    """A process whose two agents have done `step` steps and wait for the trainers if this ends a rollout."""
    layout = SimpleNamespace(spec=SimpleNamespace(t_max=5))
    segment = SimpleNamespace(end=np.full(2, step), trained=np.zeros(2, int), allowance=1, layout=layout, fd=0)
    return SimpleNamespace(segment=segment, popen=SimpleNamespace(pid=7))


def test_an_interval_is_measured_by_itself(monkeypatch):
    """It begins when the last process has a rollout, and the scheduler is asked at its end."""
    now, queue, asked = 100.0, [], []
    monkeypatch.setattr(steering.time, "monotonic", lambda: now)
    monkeypatch.setattr(ram, "in_use", lambda pids: 1000 * len(pids))
    monkeypatch.setattr(ram, "unwritten", lambda fds: len(list(fds)))
    monkeypatch.setattr(ram, "own", lambda pid: 30)
    system = SimpleNamespace(
        config=Config(t_max=5, run_ahead=5, scheduler="queue", scheduler_seconds=20.0),
        metrics=SimpleNamespace(steps_trained=4000),
        requests={"base": queue},
        memory_limit=9999,
        layout=SimpleNamespace(nbytes=lambda: 500),
    )
    policy = SimpleNamespace(propose=lambda counts, seen: asked.append(seen) or Counts(2, 1, 1), get_state=dict)
    predictors, trainers = (SimpleNamespace(idle_share=lambda share=share: share) for share in (0.25, 0.5))
    judge = Steering(system, predictors, trainers, policy)
    young, old = remote(0), remote(50)
    now, system.metrics.steps_trained = 200.0, 5000
    assert judge.tick(Counts(1, 1, 1), [young, old]) is None
    young.segment.end[:] = 6
    for now, waiting in ((210.0, 1), (219.0, 2)):  # noqa: B007  the clock reads it
        queue[:] = [0] * waiting
        assert judge.tick(Counts(1, 1, 1), [young, old]) is None and not asked
    now, queue[:], system.metrics.steps_trained = 220.0, [0] * 6, 5400
    assert judge.tick(Counts(1, 1, 1), [young, old]) == Counts(2, 1, 1)
    assert asked == [Observation(20.0, 3.0, 0.25, 0.5, 0.5, 3002, 9999, 530)]
