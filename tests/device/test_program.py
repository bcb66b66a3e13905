"""Turns: every step of every agent is trained on once, as often as the objective says."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import configure, keras_on_jax, make_program, value_of  # noqa: E402

from gunreal.config.derived import Rates  # noqa: E402
from gunreal.tasks.value_replay import ValueReplay  # noqa: E402

pytestmark = keras_on_jax


def run(config, turns, tasks=()):
    program, learner = make_program(config, tasks=tasks)
    loop, reports = program.start(), []
    for turn in range(turns):
        loop, report = program.turn(loop, turn, Rates(0.1 * turn, 0.5))
        reports.append(jax.device_get(tuple(report)))
    jax.effects_barrier()
    return program, learner, loop, reports


def rows_of(batch):
    return np.concatenate(batch["base"]["observations"])


def trained_steps(learner):
    """Each (observation, action) that was learned from, with how often."""
    counts = {}
    for batch in learner.batches:
        rows = np.concatenate([rows_of(batch), batch["base"]["action"].reshape(-1, 1)], 1)
        for row, mask in zip(rows.tolist(), batch["base"]["mask"].ravel(), strict=True):
            counts[tuple(row)] = counts.get(tuple(row), 0) + int(mask)
    return counts


def test_a_single_group_learns_on_policy():
    _, learner, loop, reports = run(configure(env_args={"script": "~"}), 3)
    assert len(learner.batches) == 3 and int(loop.version) == 3
    np.testing.assert_allclose(learner.rates, [(0.0, 0.5), (0.1, 0.5), (0.2, 0.5)], rtol=1e-6)
    counts = trained_steps(learner)
    assert len(counts) == 8 * 4 * 3 and set(counts.values()) == {1}
    for _, metrics, lags, _ in reports:
        np.testing.assert_array_equal([each.values for each in metrics], [[0.5, 0.0]])
        np.testing.assert_array_equal(lags, [[0, 0, 0, 0]])


def test_groups_learn_in_turn():
    program, learner, loop, reports = run(configure(env_args={"script": "~"}, device_batches=2), 6)
    assert (program.groups, program.block) == (2, 2) and int(loop.store["end"]) == 12
    assert [batch["base"]["mask"].shape for batch in learner.batches] == [(4, 4)] * 6
    counts = trained_steps(learner)
    assert set(counts.values()) == {0, 1}
    seen = sorted(t for (_, t, _, _), count in counts.items() if count)
    # Steps 0 to 11 of 8 agents; the last two of the group whose turn comes next are not trained on yet.
    assert seen == sorted([t for t in range(12) for _ in range(8 if t < 10 else 4)])
    lags = [report[2][0].tolist() for report in reports]
    assert lags[:3] == [[-1, -1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_ppo_learns_from_each_step_in_every_epoch():
    config = configure(env_args={"script": "~"}, objective="ppo", objective_args={"epochs": 3, "minibatches": 2})
    program, learner, loop, reports = run(config, 2)
    assert len(learner.batches) == 2 * 3 * 2 and program.parts == 2
    assert set(trained_steps(learner).values()) == {3}
    np.testing.assert_array_equal(np.array(reports[0][2])[:, 0], np.arange(6))
    epochs = [rows_of(batch)[:, 0].tolist() for batch in learner.batches]
    assert sorted(epochs[0] + epochs[1]) == sorted(epochs[2] + epochs[3])
    assert set(epochs[0]) != set(epochs[2])  # in a new order


def test_a_phase_follows_every_second_turn():
    """It learns from both, in three passes of two minibatches, which have what was predicted before it."""
    phased = {"objective": "objectives:Phased", "objective_args": {"epochs": 1, "minibatches": 2}}
    _, learner, _, reports = run(configure(env_args={"script": "~"}, **phased), 4)
    assert [report[3] for report in reports] == [["base"] * 2, ["base"] * 2 + ["phase"] * 12] * 2
    assert ["old" in batch for batch in learner.batches[:16]] == [False] * 4 + [True] * 12
    for batch in learner.batches[4:16]:
        expected = value_of(rows_of(batch)).reshape(batch["base"]["mask"].shape) + 4  # updates before the phase
        np.testing.assert_allclose(batch["old"]["value"], expected, rtol=1e-5)
    seen = np.concatenate([rows_of(batch) for batch in learner.batches[4:16]])
    once = np.concatenate([rows_of(batch) for batch in learner.batches[:4]])
    assert sorted(seen.tolist()) == sorted(np.tile(once, (3, 1)).tolist())


def test_tasks_take_part_in_a_share_of_the_first_epoch():
    ppo = {"objective": "ppo", "objective_args": {"epochs": 2, "minibatches": 2}, "task_share": 0.5}
    config = configure(env_args={"script": "~"}, tasks=("vr",), replay_size=12, **ppo)
    _, learner, _, reports = run(config, 3, [ValueReplay()])
    shares = [[True, False, False, False]] * 2 + [[True, True, False, False]]
    with_tasks = sum(shares, [])
    assert [[kind == "tasks" for kind in report[3]] for report in reports] == shares
    assert ["vr" in batch for batch in learner.batches] == with_tasks
