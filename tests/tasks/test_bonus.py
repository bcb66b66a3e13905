"""Rewards of tasks: what the values learn from, and that agents follow them."""

from __future__ import annotations

import numpy as np
import pytest
from training import Training

from gunreal.experience.rollouts import read_rollouts
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment

SPEC = Spec((2,), 1, "float32", num_actions=2, t_max=5, reward_clip=0.5, bonus=True)


def test_a_bonus_belongs_to_the_step_that_led_to_its_observation():
    segment = synthetic_segment(SPEC, {}, 60)
    replay, rows = segment.replay(np.zeros(1, int)), segment.arrays
    assert replay.end == 60 and len(rows["reward"][0]) > 60
    slow = [np.clip(rows["reward"][0, t], -0.5, 0.5) + rows["bonus"][0, t + 1] for t in range(60)]
    np.testing.assert_allclose(replay.rewards(np.array([55]), 5)[0], slow[55:])
    read, after = segment.read(np.zeros(1, int)), np.zeros(1, np.float32)
    rollouts = read_rollouts(SPEC, read, np.arange(20, 25)[None], after, np.array([9.0], np.float32))
    np.testing.assert_allclose(rollouts.reward[0], [*slow[20:24], np.clip(rows["reward"][0, 24], -0.5, 0.5) + 9])


@pytest.mark.parametrize("runner", ["serial --steps 4000 --min_batch 160", "device --steps 16000"])
def test_agents_follow_it_and_scores_do_not_contain_it(tmp_path, runner):
    """At random, it would be at 7 / 16: the first of eight observations has no last action."""
    pytest.importorskip("jax")
    common = "--env liking:make --tasks liking:Liking,vr --replay_size 100 --agents 8 --hidden 16 --learning_rate 5e-3"
    with Training(tmp_path, *f"{common} --metrics_seconds 0.2 --runner {runner}".split()) as run:
        assert run.end() == 0, run.stderr
        last = [line for line in run.lines() if line.get("liking_share") is not None][-1]  # with updates
    assert last["liking_share"] > 0.6 and last["value_mean"] > 1 and last["score_mean"] == 0
