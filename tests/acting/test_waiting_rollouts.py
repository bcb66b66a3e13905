"""How many rollouts of each agent may wait for the trainers."""

from __future__ import annotations

from gunreal.acting.pool import Member, Pool, rollouts_that_wait
from gunreal.experience import queues
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec

LAYOUT = Layout(
    Spec((3,), 1, "float32", 3, t_max=4), agents=2, groups=2, replay_size=40, extra={}, slots=2, mailboxes={}
)


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
