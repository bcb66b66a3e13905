"""DQN's batches: double n-step targets and priorities, against NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import configure, filled, interface, keras_on_jax, make_program, value_of  # noqa: E402

from gunreal.config.derived import Rates  # noqa: E402
from gunreal.config.objective import load_objective  # noqa: E402
from gunreal.device import dqn, store  # noqa: E402
from gunreal.experience.replay import RESET, TERMINATED  # noqa: E402

pytestmark = keras_on_jax
ONLINE, TARGET = (np.float32(3),), (np.float32(7),)


def predict(weights, observations, past):
    """Q values that rank the actions differently for different weights."""
    value = value_of(observations) + weights[0]
    return (jax.numpy.stack([jax.numpy.sin(value), jax.numpy.cos(value), 0 * value], 1),)


@functools.cache
def played(blocks=11, **options):
    config = configure(device_batches=2, objective="dqn", replay_size=12, objective_args={"steps": 2, **options})
    spec = interface(config)
    _, kept, steps = filled(config, store.ring_size(spec, 12, 2), blocks, weight=3, exploration=0.5)
    return config, spec, kept, steps


def gather(config, spec, kept, key=0):
    compiled = jax.jit(
        lambda kept, key: dqn.gather(
            load_objective(config), spec, config.replay_size, predict, ONLINE, TARGET, kept, 1, key
        )
    )
    return jax.device_get(compiled(kept, jax.random.key(key)))


def slow_targets(reward, discount, values, length, count):
    """By the definition of n-step returns, one step at a time."""
    returns = np.zeros(len(reward))
    for t in range(length):
        factor, last = 1.0, min(t + count, length)
        for k in range(t, last):
            returns[t] += factor * reward[k]
            factor *= discount[k]
        returns[t] += factor * values[last]
    return returns


@pytest.mark.parametrize("count", [1, 3, 9])
def test_n_step_targets(count):
    rng, length = np.random.default_rng(0), np.array([5, 3, 1, 0])
    reward, values = rng.normal(size=(4, 5)), rng.normal(size=(4, 6))
    discount = rng.choice([0, 0.9], p=(0.2, 0.8), size=(4, 5))
    found = np.asarray(dqn.n_step_targets(*(x.astype(np.float32) for x in (reward, discount, values)), length, count))
    for row in range(4):
        expected = slow_targets(reward[row], discount[row], values[row], length[row], count)
        np.testing.assert_allclose(found[row, : length[row]], expected[: length[row]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_targets_are_those_of_the_target_network(double):
    config, spec, kept, steps = played(double=double)
    batch, acted, changed = gather(config, spec, kept)
    base, observations = batch["base"], batch["base"]["observations"]
    assert not changed and base["mask"].sum() >= 8
    for agent, frames in enumerate(observations):
        rows = {name: array[agent] for name, array in steps.items()}
        ages = acted.reshape(base["mask"].shape)[agent]
        same = (rows["frame"] == frames[0]).all(1) & (np.arange(22) // 2 == ages[0])
        first = int(np.nonzero(same)[0][0])
        assert 21 - 12 <= first < 21  # the newest step is the state after the newest sequence
        length = _length(rows, first, 21)
        span = slice(first, first + length)
        own, target = (
            np.asarray(predict(weights, rows["frame"][first : first + length + 1], None)[0])
            for weights in (ONLINE, TARGET)
        )
        best = (own if double else target).argmax(1)
        values = target[np.arange(length + 1), best]
        reward = np.clip(rows["reward"][span], -0.6, 0.6)
        discount = np.where(rows["flags"][span] & TERMINATED, 0, config.discount)
        expected = slow_targets(reward, discount, values, length, 2)
        mask = rows["flags"][span] & RESET == 0
        np.testing.assert_array_equal(base["mask"][agent], np.pad(mask, (0, spec.t_max - length)))
        np.testing.assert_allclose(base["q_target"][agent, :length], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(base["action"][agent, :length], rows["action"][span])
        np.testing.assert_array_equal(ages[:length], np.where(mask, np.arange(first, first + length) // 2, -1))


def _length(rows, first, end):
    """Number of steps from `first` to a truncated one, the newest one or `t_max`."""
    flags = rows["flags"][first : min(first + 4, end)]
    (cut,) = np.nonzero(flags & 4)
    return int(cut[0]) + 1 if len(cut) else len(flags)


def test_sequences_with_large_errors_are_drawn_more_often():
    config, spec, kept, _ = played(priority=1.0)
    step, hits, starts, weights = 15, 0, set(), []
    rows = len(kept["base.priority"])
    few = jax.numpy.full_like(kept["base.priority"], 1e-9)
    kept = kept | {"base.priority": few.at[step % rows].set(1.0)}
    wanted = np.asarray(kept["frame"][step % rows, 1])[:, None]
    for key in range(10):
        batch = gather(config, spec, kept, key)[0]
        there = (batch["base"]["observations"] == wanted).all(-1) & (batch["base"]["mask"] > 0)
        hits += there.any(1).sum()
        starts |= set(there.argmax(1)[there.any(1)].tolist())
        weights += batch["base"]["weight"].tolist()
    assert hits >= 0.9 * 40 and 0 < min(weights) <= max(weights) == 1
    assert starts == {0, 1, 2, 3}  # the error is that of any step of the sequence


def test_a_draw_sets_the_errors_of_all_steps_of_the_sequence():
    config, spec, kept, steps = played(priority=1.0)
    kept = kept | {"base.priority": jax.numpy.full_like(kept["base.priority"], 77)}  # no error has this value
    batch, _, changed = gather(config, spec, kept)
    error, base, rows = np.asarray(changed["base.priority"]), batch["base"], len(kept["age"])
    assert (error[:, 0] == 77).all()  # the other group
    lengths = []
    for agent, frames in enumerate(batch["base"]["observations"]):
        q = np.asarray(predict(ONLINE, frames, None)[0])
        taken = q[np.arange(len(q)), base["action"][agent]]
        mask = base["mask"][agent] > 0
        moved = [step for step in range(22 - rows, 22) if error[step % rows, 1, agent] != 77]
        np.testing.assert_array_equal(steps["frame"][agent, moved], frames[mask])
        wanted = np.abs(base["q_target"][agent] - taken)[mask]
        np.testing.assert_allclose(error[np.array(moved) % rows, 1, agent], wanted, rtol=1e-4, atol=1e-5)
        lengths.append(len(moved))
    assert max(lengths) > 1


def test_an_error_that_is_not_finite_is_not_kept():
    """The update with it is skipped. It would be the error of all later steps."""
    config, spec, kept, _ = played(priority=1.0)
    _, _, changed = gather(config, spec, kept | {"reward": kept["reward"].at[:, 1, 0].set(np.nan)})
    assert np.isfinite(changed["base.priority"]).all()
    before = np.asarray(kept["base.priority"])
    np.testing.assert_array_equal(changed["base.priority"][:, 1, 0], before[:, 1, 0])
    assert (changed["base.priority"] != before).any()


def test_the_target_network_follows_every_few_updates():
    config = configure(objective="dqn", replay_size=12, objective_args={"updates": 2, "target": 3})
    program, learner = make_program(config)
    loop, targets = program.start(), []
    for number in range(4):
        loop, turn = program.turn(loop, number, Rates(0.0, 0.0), 0.5)
        targets.append(float(loop.target[0]))
        assert len(turn.metrics) == len(turn.lags) == 2
    jax.effects_barrier()
    assert targets == [0, 3, 6, 6] and int(loop.version) == len(learner.batches) == 8
    assert "q_target" in learner.batches[0]["base"]
