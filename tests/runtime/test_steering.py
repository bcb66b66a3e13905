"""What the scheduler is told. test_parallel.py has it in a run."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import Bench

from gunreal.runtime.steering import blocked_share


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
