from __future__ import annotations

import pytest
from helpers import Bench
from rings import LAYOUT

from gunreal.acting.pool import Member, Pool, close_all, rollouts_that_wait
from gunreal.experience import queues, waits


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


@pytest.mark.parametrize("agents", [1, 2, 3, 7])
@pytest.mark.parametrize("rollouts", [1, 3, 8, 13])
@pytest.mark.parametrize(("members", "run_ahead"), [(1, 0), (1, 4), (4, 0)])
def test_a_quarter_of_the_processes_fills_the_next_batch(agents, rollouts, members, run_ahead):
    """Others that have not begun, or never answer, stop nobody; the one that is left after their removal goes on."""
    options = {"t_max": 2, "min_batch": 2 * rollouts, "run_ahead": run_ahead}
    with Bench("~", agents=agents, members=members, **options) as bench:
        asleep = bench.members[1:]
        del bench.members[1:]
        bench.start()
        assert len(bench.step(20 * rollouts)) >= 6
        if asleep:
            bench.step(20 * rollouts, train=False)
            for member in asleep:
                bench.pool.remove(member.process).close()
            assert len(bench.step(20 * rollouts)) >= 6


def make_pool(members, rollouts, share, **layout):
    pool = Pool(rollouts, share=share)
    for _ in range(members):
        pool.add(Member(pool.next_process(), LAYOUT._replace(groups=1, **layout)))
    return pool


@pytest.mark.parametrize(
    ("members", "agents", "slots", "rollouts", "share", "allowed"),
    [
        *((members, 1, 8, 8, 0.25, allowed) for members, allowed in ((7, 8), (8, 4), (11, 4), (12, 3), (16, 2))),
        *((2, 16, 8, *given) for given in ((32, 0.25, 4), (32, 1.0, 1), (30, 0.25, 5), (24, 1.0, 1), (33, 1.0, 2))),
        (3, 2, 2, 4, 0.25, 2),
        (3, 16, 1, 4, 0.25, 1),
    ],
)
def test_the_more_agents_the_fewer_rollouts_of_each_may_wait(members, agents, slots, rollouts, share, allowed):
    """A share of the agents fills a batch. Each may always leave one rollout, and no more than it has slots for."""
    pool = make_pool(members, rollouts, share, agents=agents, slots=slots)
    assert [member.segment.allowance for member in pool.members()] == [allowed] * members
    close_all(pool.members())


def test_who_may_leave_more_rollouts_than_before_is_told():
    pool = make_pool(17, 8, 0.25, agents=1, slots=8)
    one, two, *others = pool.members()
    assert not any(len(member.wake) for member in pool.members())
    for member in others:
        pool.remove(member.process)
    assert one.segment.allowance == two.segment.allowance == 8
    grew = [(queues.TRAINED, 0)] * 3  # to 3, 4 and 8
    assert one.wake.get(100, 0).tolist() == two.wake.get(100, 0).tolist() == grew
    close_all([one, two, *others])


def test_groups_that_are_queued_in_parts_need_more():
    """A pipe takes up to 256 records at once. Of 257, a batch may get a part."""
    assert [rollouts_that_wait(agents, agents, agents) for agents in (512, 514)] == [1, 2]
