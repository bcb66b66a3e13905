from __future__ import annotations

import pytest
from helpers import Bench

from gunreal.experience import waits


def test_waits_are_from_a_request_to_its_answer(monkeypatch):
    """Being held back by the trainers, after the answer, is none."""
    now = [0.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    with Bench("~", ["vr"], agents=3, run_ahead=0) as bench:
        (member,) = bench.members
        member.worker.start()
        for _ in range(20):
            now[0] += 0.25
            bench.serve()
            now[0] += 0.5
            member.step()
        assert member.segment.end.tolist() == [4, 4, 4]  # the trainers have taken nothing
        waited = member.segment.waits.total()
        assert waited.counts.sum(axis=1).tolist() == [5, 5] and waited.seconds.tolist() == [3.75, 3.75]


@pytest.mark.parametrize(("agents", "slots"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("run_ahead", [0, 1, 3, 4, 9])
def test_without_trainers_a_group_stops(agents, slots, run_ahead):
    """It gives as many rollouts as there are slots, runs a little ahead, and goes on when they are taken."""
    with Bench("--T", agents=agents, min_batch=8, run_ahead=run_ahead) as bench:
        assert bench.layout.slots == slots
        bench.start().step(60, train=False)
        ahead = min(run_ahead, 4)
        end = bench.members[0].segment.end
        assert end.tolist() == [4 * slots + ahead] * agents
        firsts = bench.rollouts.get(100, 0)["first"].tolist()
        assert sorted(firsts) == sorted(list(range(0, 4 * slots, 4)) * agents)
        bench.members[0].segment.trained[:] += 1
        bench.members[0].reply(255, range(len(bench.members[0].groups)))
        bench.step(60, train=False)
        assert end.tolist() == [4 * slots + 4 + ahead] * agents
        assert bench.rollouts.get(100, 0)["first"].tolist() == [4 * slots] * agents


@pytest.mark.parametrize("agents", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rollouts", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("run_ahead", [0, 4])
def test_one_process_always_fills_the_next_batch(agents, rollouts, run_ahead):
    """Back-pressure never stops all agents short of a batch."""
    with Bench("~", agents=agents, t_max=2, min_batch=2 * rollouts, run_ahead=run_ahead) as bench:
        bench.start()
        batches = bench.step(20 * rollouts)
        assert len(batches) >= 6


@pytest.mark.parametrize("agents", [1, 2, 3, 7])
@pytest.mark.parametrize("rollouts", [1, 3, 8, 13])
def test_a_quarter_of_the_processes_fills_the_next_batch(agents, rollouts):
    """Others that have not begun, or never answer, stop nobody; the one that is left after their removal goes on."""
    with Bench("~", agents=agents, members=4, t_max=2, min_batch=2 * rollouts, run_ahead=0) as bench:
        asleep = bench.members[1:]
        del bench.members[1:]
        bench.start()
        assert len(bench.step(20 * rollouts)) >= 6
        bench.step(20 * rollouts, train=False)
        for member in asleep:
            bench.pool.remove(member.process).close()
        assert len(bench.step(20 * rollouts)) >= 6
