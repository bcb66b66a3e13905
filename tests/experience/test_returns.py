"""Returns and reward clipping, against hand-worked numbers and recursions written out slowly."""

from __future__ import annotations

import importlib
import itertools
import types

import numpy as np
import pytest

from gunreal.experience import returns


@pytest.fixture(params=["numpy", "jax.numpy"])
def xp(request):
    """The functions with their arrays in NumPy or JAX, and the results in NumPy."""
    pytest.importorskip(request.param)
    library = importlib.import_module(request.param)

    def array(value):
        value = np.asarray(value)
        return library.asarray(value.astype(np.float32) if value.dtype == np.float64 else value)

    def called(function):
        def call(*args, **kwargs):
            found = function(*(x if isinstance(x, float) else array(x) for x in args), **kwargs)
            assert found.dtype == np.float32
            return np.asarray(found)

        return call

    names = ("clip_rewards", "n_step_returns", "generalized_advantages", "rollout_returns", "normalized")
    return types.SimpleNamespace(**{name: called(getattr(returns, name)) for name in names})


def slow_return(rewards, discounts, truncated, values_t, t):
    """The sum of what follows step `t`, written forwards."""
    total, factor = 0.0, 1.0
    for k in range(t, len(rewards)):
        total += factor * rewards[k]
        factor *= discounts[k]
        if truncated[k] or k == len(rewards) - 1:
            return total + factor * values_t[k]
    raise AssertionError


def test_clip_rewards(xp):
    rewards = np.array([-7.0, -0.5, 0.0, 2.0])
    np.testing.assert_array_equal(xp.clip_rewards(rewards, 1.0), np.float32([-1, -0.5, 0, 1]))
    np.testing.assert_array_equal(xp.clip_rewards(rewards, 0.0), np.float32(rewards))


def test_n_step_returns_by_hand(xp):
    # 4 = 1 + 0.5 * 6; 6 = 2 + 0.5 * 8; 8 = 3 + 0.5 * 10. The second sequence is shorter: 6 = 1 + 0.5 * 10. The third
    # terminates with 2: 2 = 1 + 0.5 * 2
    discounts = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0, 0.5]]
    found = xp.n_step_returns([[1.0, 2, 3]] * 3, discounts, [10.0] * 3, [3, 1, 3])
    np.testing.assert_array_equal(found, [[4, 6, 8], [6, 0, 0], [2, 2, 8]])


def test_n_step_returns_of_cells_broadcast_the_discount(xp):
    rng, lengths = np.random.default_rng(0), [5, 2]
    rewards, bootstrap = rng.normal(size=(2, 5, 3, 2)), rng.normal(size=(2, 3, 2))
    discounts = np.array([[0.9, 0.9, 0.0, 0.9, 0.9]] * 2)
    found = xp.n_step_returns(rewards, discounts, bootstrap, lengths)
    assert found.shape == (2, 5, 3, 2)
    for n, length in enumerate(lengths):
        assert not found[n, length:].any()
        for t, i, j in np.ndindex(length, 3, 2):
            cell = rewards[n, :length, i, j], discounts[n], np.zeros(length, bool), np.full(length, bootstrap[n, i, j])
            assert found[n, t, i, j] == pytest.approx(slow_return(*cell, t), abs=1e-5)


def test_normalized(xp):
    rng = np.random.default_rng(0)
    advantage, mask = rng.normal(size=(5, 7)), (rng.random((5, 7)) > 0.2).astype(np.float32)
    kept = advantage[mask > 0]
    wanted = (advantage - kept.mean()) / kept.std()
    np.testing.assert_allclose(xp.normalized(advantage, mask), wanted, rtol=1e-4, atol=1e-5)
    alone = np.zeros_like(mask)
    alone[0, 0] = 1  # the advantage of a single step would become 0
    assert xp.normalized(advantage, alone)[0, 0] == np.float32(advantage[0, 0])


def test_rollout_returns_against_the_sum_written_forwards(xp):
    rng = np.random.default_rng(1)
    rewards, values_t, ended = rng.normal(size=(3, 16, 9))
    discounts, truncated = np.where(ended < -1, 0.0, 0.99), ended > 1
    found = xp.rollout_returns(rewards, discounts, truncated, values_t)
    rows = zip(rewards, discounts, truncated, values_t, strict=True)
    expected = [[slow_return(*row, t) for t in range(9)] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def slow_advantage(rewards, discounts, truncated, values, values_t, decay, t):
    """The decayed sum of one-step errors from `t` on, written forwards."""
    total, factor = 0.0, 1.0
    for k in range(t, len(rewards)):
        total += factor * (rewards[k] + discounts[k] * values_t[k] - values[k])
        factor *= discounts[k] * decay
        if truncated[k]:
            break
    return total


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_generalized_advantages_across_ends_of_episodes(xp, decay):
    rng = np.random.default_rng(2)
    rewards, values = rng.normal(size=(2, 3, 6))
    values_t = np.concatenate([values[:, 1:], rng.normal(size=(3, 1))], axis=1)
    discounts, truncated = np.full((3, 6), 0.9), np.zeros((3, 6), bool)
    discounts[0, 2], truncated[1, 3] = 0, True
    found = xp.generalized_advantages(rewards, discounts, truncated, values, values_t, decay)
    rows = zip(rewards, discounts, truncated, values, values_t, strict=True)
    wanted = [[slow_advantage(*row, decay, t) for t in range(6)] for row in rows]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    if decay == 1:
        wanted = xp.rollout_returns(rewards, discounts, truncated, values_t)
        np.testing.assert_allclose(found + values, wanted, atol=1e-5)


def test_joined_advantages_are_those_of_longer_rollouts():
    """Three agents have 1, 2 and 3 rollouts in a row. A fourth one has two with a gap between them."""
    rollouts = [(0, 10), (3, 10), (1, 10), (2, 0), (2, 10), (1, 5), (3, 0), (2, 5)]
    agents, firsts = np.array(rollouts).T
    rewards, ended, values, values_t = np.random.default_rng(4).normal(size=(4, 8, 5)).astype(np.float32)
    parts = [rewards, np.where(ended < -1, np.float32(0), np.float32(0.9)), ended > 1, values, values_t]
    found = returns.joined_advantages(agents, firsts, *parts, 0.8)
    assert found.dtype == np.float32
    for place, (agent, first) in enumerate(rollouts):
        following = itertools.takewhile(rollouts.__contains__, ((agent, step) for step in itertools.count(first, 5)))
        row = [rollouts.index(rollout) for rollout in following]
        whole = [part[row].reshape(1, -1) for part in parts]
        wanted = returns.generalized_advantages(*whole, 0.8)[0, :5]
        np.testing.assert_allclose(found[place], wanted, atol=1e-5)
    doubled = [np.tile(part, (2, 1)) for part in parts]
    twice = returns.joined_advantages(np.tile(agents, 2), np.tile(firsts, 2), *doubled, 0.8)
    np.testing.assert_array_equal(twice, np.tile(found, (2, 1)))
