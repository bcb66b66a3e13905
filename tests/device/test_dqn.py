"""DQN's batches: double n-step targets and priorities, against NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import configure, interface, keras_on_jax, make_acting, make_program, value_of  # noqa: E402

from gunreal.device import dqn, sequences, store  # noqa: E402
from gunreal.experience.replay import RESET, TERMINATED  # noqa: E402

pytestmark = keras_on_jax
ONLINE, TARGET = (np.float32(3),), (np.float32(7),)
GROUPS = 2


def predict(weights, observations, past):
    """Q values that rank the actions differently for different weights."""
    value = value_of(observations) + weights[0]
    return (jax.numpy.stack([jax.numpy.sin(value), jax.numpy.cos(value), 0 * value], 1),)


@functools.cache
def played(blocks=11, **options):
    config = configure(device_batches=GROUPS, algorithm="dqn", replay_size=12, dqn_steps=2, **options)
    agents, spec = make_acting(config), interface(config)
    actors, act, found = jax.jit(agents.start)(), jax.jit(agents.play, static_argnums=2), []
    rows = store.ring_size(spec, 12, 2)
    kept = store.blank(spec, rows, GROUPS, config.agents, config.dqn_priority > 0)
    for version in range(blocks):
        actors, block, _ = act(ONLINE, actors, 2, 0.5)
        kept = store.append(kept, block, version)
        found.append(block)
    steps = {name: np.concatenate([block[name] for block in found]).swapaxes(0, 1)[1::2] for name in found[0]}
    return config, spec, kept, steps


def gather(config, spec, kept, key=0):
    compiled = jax.jit(lambda kept, key: dqn.gather(config, spec, predict, ONLINE, TARGET, kept, 1, key))
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
    config, spec, kept, steps = played(dqn_double=double)
    batch, acted, changed = gather(config, spec, kept)
    base, observations = batch["base"], batch["observations"]["base"]
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
    config, spec, kept, _ = played(dqn_priority=1.0)
    priority = np.full(kept["priority"].shape, 1e-3, np.float32)
    step = 15
    priority[step % len(priority)] = 1.0
    kept = kept | {"priority": jax.numpy.asarray(priority)}
    weights, hits = [], 0
    for key in range(10):
        batch, _, changed = gather(config, spec, kept, key)
        at_step = (batch["observations"]["base"][:, 0] == np.asarray(kept["frame"][step % len(priority), 1])).all(1)
        hits += at_step.sum()
        weights += batch["base"]["weight"].tolist()
        assert changed["priority"].shape == priority.shape and changed["peak"] >= 1
        moved = np.asarray(changed["priority"]) != priority
        assert not moved[:, 0].any() and 0 < moved[:, 1].sum() <= 4  # at most one step of each agent of the group
    assert hits >= 0.9 * 40 and 0 < min(weights) <= max(weights) == 1


@pytest.mark.parametrize("off", [-0.5, 0.5])
def test_rounding_of_the_sums_draws_no_step_without_a_share(monkeypatch, off):
    """The sum of a reset is too large or too small here, and the draw lies between that and the sum before."""
    config, spec, kept, _ = played(dqn_priority=1.0)
    replay = sequences.replay(kept, spec, config.replay_size, 1)
    resets = np.asarray(replay.window("flags")) & RESET != 0
    assert (np.asarray(replay.window("priority")) == 1).all() and int(replay.oldest) == int(replay.steps[0])
    exact, cumsum = np.cumsum(~resets, axis=1), jax.numpy.cumsum
    agent, step = np.argwhere(resets[:, 1:-1])[0] + (0, 1)

    def rounded(x, **options):
        sums = cumsum(x, **options)
        return sums.at[agent, step].add(off) if x.dtype == "float32" else sums

    monkeypatch.setattr(dqn.jnp, "cumsum", rounded)
    draws = np.full((len(resets), 1), (exact[agent, step] + off / 2) / exact[agent, -1], np.float32)
    first = dqn._draw(config, replay, jax.numpy.asarray(draws)).sequences.first
    assert not resets[agent, int(first[agent] - replay.steps[0])]


def test_an_error_that_is_not_finite_leaves_the_priorities():
    """The update with it is skipped. Its priority would be that of all later steps."""
    config, spec, kept, _ = played(dqn_priority=1.0)
    _, _, changed = gather(config, spec, kept | {"reward": kept["reward"].at[:, 1, 0].set(np.nan)})
    assert np.isfinite(changed["priority"]).all() and np.isfinite(changed["peak"])
    before = np.asarray(kept["priority"])
    np.testing.assert_array_equal(changed["priority"][:, 1, 0], before[:, 1, 0])
    assert (changed["priority"] != before).any()


def test_the_target_network_follows_every_few_updates():
    config = configure(algorithm="dqn", replay_size=12, dqn_updates=2, dqn_target=3)
    program, learner = make_program(config)
    loop, targets = program.start(), []
    for number in range(4):
        loop, turn = program.turn(loop, number, 0.0, 0.5)
        targets.append(float(loop.target[0]))
        assert len(turn.values) == len(turn.lags) == 2
    jax.effects_barrier()
    assert targets == [0, 3, 6, 6] and int(loop.version) == len(learner.batches) == 8
    assert "q_target" in learner.batches[0]["base"]
