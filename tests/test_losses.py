"""The losses' values against slow NumPy and hand-worked numbers, and the paths of their gradients."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
from keras import ops

from gunreal import losses

EPSILON = 1e-3


@pytest.fixture
def steps():
    rng = np.random.default_rng(0)
    return {
        "logits": rng.normal(size=(3, 4, 5)).astype(np.float32),
        "action": rng.integers(0, 5, (3, 4)).astype(np.int32),
        "advantage": rng.normal(size=(3, 4)).astype(np.float32),
        "mask": (rng.random((3, 4)) < 0.6).astype(np.float32),
    }


def slow_softmax(logits):
    exps = [math.exp(x) for x in logits]
    return [x / sum(exps) for x in exps]


def kept(mask):
    return list(zip(*np.nonzero(mask), strict=True))


def gradient(function, at):
    """Gradient of a scalar function of one array, in whichever backend runs."""
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(function)(at))
    import tensorflow as tf

    x = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy()


def test_masked_mean():
    assert float(losses.masked_mean(np.float32([1, 2, 30]), np.float32([1, 1, 0]))) == 1.5
    assert float(losses.masked_mean(np.float32([1, 2]), np.float32([0, 0]))) == 0.0


def test_policy_gradient_loss_by_hand():
    # pi = (1/4, 3/4); action 1 with advantage 2: -2 log(0.75 + 0.05)
    logits = np.log(np.float32([[[1, 3]]]))
    loss = losses.policy_gradient_loss(logits, np.int32([[1]]), np.float32([[2]]), np.float32([[1]]), 0.05)
    assert float(loss) == pytest.approx(-2 * math.log(0.8), abs=1e-6)


def test_policy_gradient_loss(steps):
    terms = [
        -math.log(slow_softmax(steps["logits"][i])[steps["action"][i]] + EPSILON) * steps["advantage"][i]
        for i in kept(steps["mask"])
    ]
    assert float(losses.policy_gradient_loss(**steps, epsilon=EPSILON)) == pytest.approx(np.mean(terms), abs=1e-5)


def test_epsilon_bounds_the_loss_of_an_impossible_action():
    logits, one = np.float32([[[0, -1000]]]), np.float32([[1]])
    loss = losses.policy_gradient_loss(logits, np.int32([[1]]), one, one, 1e-6)
    assert float(loss) == pytest.approx(-math.log(1e-6), rel=1e-5)


def test_no_gradient_flows_into_the_advantage(steps):
    def loss(advantage):
        return losses.policy_gradient_loss(steps["logits"], steps["action"], advantage, steps["mask"], EPSILON)

    assert not gradient(loss, steps["advantage"]).any()


def test_policy_gradient(steps):
    """d/dz_a of -log(pi_k + eps) adv / n is -adv pi_k (1[a = k] - pi_a) / (pi_k + eps) / n (GA3C, below eq. 5)."""
    expected = np.zeros_like(steps["logits"])
    for i in kept(steps["mask"]):
        pi, k = slow_softmax(steps["logits"][i]), steps["action"][i]
        for a in range(5):
            expected[i][a] = -steps["advantage"][i] * pi[k] * ((a == k) - pi[a]) / (pi[k] + EPSILON)
    expected /= steps["mask"].sum()
    found = gradient(
        lambda logits: losses.policy_gradient_loss(**{**steps, "logits": logits}, epsilon=EPSILON), steps["logits"]
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_entropy(steps):
    terms = [-sum(p * math.log(p + EPSILON) for p in slow_softmax(steps["logits"][i])) for i in kept(steps["mask"])]
    assert float(losses.entropy(steps["logits"], steps["mask"], EPSILON)) == pytest.approx(np.mean(terms), abs=1e-5)


def test_entropy_of_a_uniform_policy():
    assert float(losses.entropy(np.zeros((1, 1, 4), np.float32), np.ones((1, 1), np.float32), 0.0)) == pytest.approx(
        math.log(4), abs=1e-6
    )


def test_value_loss_and_its_gradients():
    value, returns, mask = np.float32([[1, 2, 3]]), np.float32([[3, 2, 9]]), np.float32([[1, 1, 0]])
    assert float(losses.value_loss(value, returns, mask)) == 1.0  # (0.5 * 2^2 + 0) / 2
    np.testing.assert_array_equal(gradient(lambda v: losses.value_loss(v, returns, mask), value), [[-1, 0, 0]])
    assert not gradient(lambda r: losses.value_loss(value, r, mask), returns).any()


def test_masked_steps_change_nothing(steps):
    other = np.where(steps["mask"][..., None] > 0, steps["logits"], 7 * steps["logits"])
    for function in (
        lambda logits: losses.entropy(logits, steps["mask"], EPSILON),
        lambda logits: losses.policy_gradient_loss(**{**steps, "logits": logits}, epsilon=EPSILON),
    ):
        assert float(function(other)) == float(function(steps["logits"]))
        assert not gradient(function, steps["logits"])[steps["mask"] == 0].any()
        assert ops.shape(function(other)) == ()
