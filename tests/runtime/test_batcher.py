"""Batches: which rollouts they have, and what is gathered for these. test_trainer.py has what is done with them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import Bench, task_bootstrap

from gunreal.config.derived import rollouts_per_batch
from gunreal.experience import queues


def spy(batcher):
    """Which (member, agent, first step) each row of the next batches is of."""
    seen, gather = [], batcher._gather_member

    def gather_member(member, agents, firsts, outs):
        seen.extend(zip([member.process] * len(agents), agents.tolist(), firsts.tolist(), strict=True))
        return gather(member, agents, firsts, outs)

    batcher._gather_member = gather_member
    return seen


def check_batch(bench, batch, rows, histories):
    spec, tasks = bench.spec, bench.tasks
    lengths = [task.length(spec.t_max) for task in tasks]
    assert batch["base"]["observations"].dtype == np.float32
    assert list(batch) == ["base", "acted", *(task.name for task in tasks)]
    present = {task.name: 0 for task in tasks}
    for b, (member, agent, first) in enumerate(rows):
        history = histories[member][agent]
        steps = range(first, first + spec.t_max)
        returns, mask = history.returns(first, spec.t_max, spec)
        used = np.array(mask, bool)
        assert batch["base"]["mask"][b].tolist() == mask
        np.testing.assert_allclose(batch["base"]["returns"][b][used], np.array(returns)[used], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(batch["base"]["action"][b], [history.action[k] for k in steps])
        np.testing.assert_array_equal(
            batch["base"]["observations"][b], [history.observation(k, spec.stack) for k in steps]
        )
        for task, length in zip(tasks, lengths, strict=True):
            part, replays = batch[task.name], task.replays
            for one in range(b * replays, (b + 1) * replays):
                if not part["mask"][one].any():
                    continue  # nothing was sampled: whatever is lent stays masked
                present[task.name] += 1 / replays
                start, count = part["sequence"][one]
                assert 1 <= count <= length and start + count <= first + spec.t_max
                picked = [start + min(row, count - 1) for row in range(length)]
                wanted = [history.observation(k, spec.stack) for k in picked]
                np.testing.assert_array_equal(part["observations"][one], wanted)
                masked = [float(row < count and not history.is_final(start + row)) for row in range(length)]
                assert part["mask"][one].tolist() == masked
                assert not any(history.truncated[start + row] for row in range(count - 1))
                if "bootstrap" in part:
                    behind = history.observation(start + count, spec.stack)[None]
                    assert part["bootstrap"][one] == task_bootstrap(behind)[0]
    return present


@pytest.mark.parametrize(("agents", "min_batch"), [(4, 8), (2, 24), (1, 12), (3, 20)])
@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_batches_are_what_a_slow_reconstruction_says(agents, min_batch, clip):
    """Rings that wrap many times, every place of an episode's end in a rollout, several slots, sequences and none."""
    names = ("helpers:Tracer", "helpers:Lone")
    options = {
        "task": {"lone": {"rows": 6}, "tracer": {"replays": 3}},
        "replay_size": 10,
        "reward_clip": clip,
        "run_ahead": 5,
    }
    with Bench(
        "--T -----t T t ---t", names, members=2, agents=agents, stack=3, min_batch=min_batch, **options
    ) as bench:
        histories, seen = bench.record(), spy(bench.batcher)
        bench.start()
        total, present = 0, {"tracer": 0, "lone": 0}
        for _ in range(90):
            for batch in bench.step():
                size = rollouts_per_batch(bench.config)
                rows, seen[:size] = seen[:size], []
                for name, count in check_batch(bench, batch, rows, histories).items():
                    present[name] += count
                total += size
            assert not seen
        assert total >= 2 * agents * (90 // 4 - 3)
        for count in present.values():  # an empty sequence's start can be a row that only resets
            assert 0.5 * total < count < 0.85 * total


def test_every_rollout_is_trained_on_once():
    with Bench("--T", members=2, agents=3, min_batch=12) as bench:
        seen = spy(bench.batcher)
        bench.start()
        bench.step(40)
        for member in range(2):
            for agent in range(3):
                firsts = [first for m, a, first in seen if (m, a) == (member, agent)]
                assert firsts == list(range(0, 4 * len(firsts), 4)) and len(firsts) >= 8
                assert bench.members[member].segment.trained[agent] == len(firsts)


def test_next_waits_for_a_whole_batch():
    """Of three rollouts. The others stay in the queue."""
    with Bench("~", agents=4, min_batch=12) as bench:
        bench.start()
        records = np.array([(0, agent, 0) for agent in range(4)], queues.ROLLOUT)
        bench.rollouts.put(records[:2])
        assert bench.batcher.next(0) is None and bench.batcher.next(0.01) is None
        bench.rollouts.put(records[2:])
        assert len(bench.batcher.next(0)["base"]["mask"]) == 3 and len(bench.rollouts) == 1


def test_a_removal_during_a_read_splits_no_group(monkeypatch):
    """Otherwise batches would not be made of whole groups any more."""
    with Bench("~", agents=6, min_batch=24) as bench:  # 6 rollouts, in two groups
        bench.start()
        found = [bench.pool.get(0)]
        monkeypatch.setattr(bench.pool, "get", lambda process: found.pop() if found else None)
        bench.batcher.add(np.array([(0, agent, 0) for agent in range(3)], queues.ROLLOUT))
        assert len(bench.batcher.waiting) == 3
        bench.batcher.add(np.array([(0, agent, 0) for agent in range(3, 6)], queues.ROLLOUT))
        assert len(bench.batcher.waiting) == 3


def test_a_run_shorter_than_a_batch_trains_on_its_steps():
    with Bench("~", agents=2, min_batch=1000, steps=8) as bench:
        bench.start()
        batches = bench.step(9)
        assert [batch["base"]["mask"].shape for batch in batches] == [(2, 4), (2, 4)]
