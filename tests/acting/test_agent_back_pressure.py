from __future__ import annotations

import pytest
from helpers import Bench
from rings import LAYOUT

from gunreal.acting.pool import Member, Pool, rollouts_that_wait
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


def test_the_more_agents_the_fewer_rollouts_of_each_may_wait():
    """A quarter of the agents fills a batch of eight rollouts; who may leave more than before is told."""
    layout = LAYOUT._replace(agents=1, groups=1, slots=8)
    pool = Pool(rollouts=8)
    members, found = [Member(pool.next_process(), layout) for _ in range(17)], []
    assert members[0].segment.allowance == 8  # before it is known to others
    for member in members:
        pool.add(member)
        (allowance,) = {other.segment.allowance for other in pool.members()}
        found.append(allowance)
    assert found == [8] * 7 + [4] * 4 + [3] * 4 + [2] * 2
    assert not any(len(member.wake) for member in members)
    for member in members[2:]:
        pool.remove(member.process)
    assert members[0].segment.allowance == members[1].segment.allowance == 8
    grew = [(queues.TRAINED, 0)] * 3  # to 3, 4 and 8
    assert members[0].wake.get(100, 0).tolist() == members[1].wake.get(100, 0).tolist() == grew
    for member in members:
        member.close()


def test_where_all_agents_fill_a_batch_fewer_rollouts_wait():
    """A batch of 24 or 32 rollouts by 32 agents: one of each may wait, instead of four or five."""
    for rollouts, share, allowed in ((32, 0.25, 4), (32, 1.0, 1), (30, 0.25, 5), (24, 1.0, 1), (33, 1.0, 2)):
        pool = Pool(rollouts=rollouts, share=share)
        for _ in range(2):
            pool.add(Member(pool.next_process(), LAYOUT._replace(agents=16, slots=8)))
        assert [member.segment.allowance for member in pool.members()] == [allowed] * 2
        for member in pool.members():
            member.close()


def test_processes_of_many_agents_always_leave_one_rollout():
    """With batches of 4 rollouts: 2 agents may leave 4 each, 16 one each, whatever there are beside them."""
    for agents, slots in ((2, 2), (16, 1)):
        pool = Pool(rollouts=4)
        for _ in range(3):
            pool.add(Member(pool.next_process(), LAYOUT._replace(agents=agents, slots=slots)))
        assert [member.segment.allowance for member in pool.members()] == [slots if slots == 1 else 2] * 3
        for member in pool.members():
            member.close()


def test_groups_that_are_queued_in_parts_need_more():
    """A pipe takes up to 256 records at once. Of 257, a batch may get a part."""
    assert [rollouts_that_wait(agents, agents, agents) for agents in (512, 514)] == [1, 2]
