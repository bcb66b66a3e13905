"""Rewards of tasks: what the values learn from, and that agents follow them."""

from __future__ import annotations

import numpy as np
import pytest
from liking import Liking

import gunreal
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


@pytest.mark.parametrize("own", [{"runner": "serial", "min_batch": 160}, {"runner": "device"}])
def test_agents_follow_it_and_scores_do_not_contain_it(tmp_path, own):
    pytest.importorskip("jax")
    config = gunreal.Config(
        env="liking:make", backend="jax", tasks=(Liking, "vr"), steps=4000, agents=8, hidden=16, learning_rate=5e-3,
        metrics_seconds=0.5, logdir=str(tmp_path), name="run", **own,
    )  # fmt: skip
    run = gunreal.train(config, show=False)
    logits, value = run.actor_critic.predict("base", np.eye(2, dtype=np.float32))
    assert (logits[:, 1] - logits[:, 0] > 1).all()
    assert value.mean() > 1 and run.metrics[-1]["score_mean"] == 0
