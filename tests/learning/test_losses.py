"""The losses' values against slow NumPy and hand-worked numbers, and the paths of their gradients."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
from keras import ops

from gunreal.learning import losses
from gunreal.objectives.dqn import Dqn

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


def test_masks_ahead_keep_episodes_apart():
    mask = np.float32([[1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    one, two, three = (np.asarray(x).tolist() for x in losses.masks_ahead(mask, 3))
    assert one == [[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]]
    assert two == [[0, 0, 0, 1], [1, 1, 0, 0]]
    assert three == [[0, 0, 0], [1, 0, 0]]


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


@pytest.mark.parametrize("epsilon", [EPSILON, 0.0])
def test_policy_gradient(steps, epsilon):
    """d/dz_a of -log(pi_k + eps) adv / n is -adv pi_k (1[a = k] - pi_a) / (pi_k + eps) / n (GA3C, below eq. 5)."""
    expected = np.zeros_like(steps["logits"])
    for i in kept(steps["mask"]):
        pi, k = slow_softmax(steps["logits"][i]), steps["action"][i]
        for a in range(5):
            expected[i][a] = -steps["advantage"][i] * pi[k] * ((a == k) - pi[a]) / (pi[k] + epsilon)
    expected /= steps["mask"].sum()
    found = gradient(
        lambda logits: losses.policy_gradient_loss(**{**steps, "logits": logits}, epsilon=epsilon), steps["logits"]
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_entropy(steps):
    terms = [-sum(p * math.log(p + EPSILON) for p in slow_softmax(steps["logits"][i])) for i in kept(steps["mask"])]
    assert float(losses.entropy(steps["logits"], steps["mask"], EPSILON)) == pytest.approx(np.mean(terms), abs=1e-5)


def test_value_loss_and_its_gradients():
    value, returns, mask = np.float32([[1, 2, 3]]), np.float32([[3, 2, 9]]), np.float32([[1, 1, 0]])
    assert float(losses.value_loss(value, returns, mask)) == 1.0  # (0.5 * 2^2 + 0) / 2
    np.testing.assert_array_equal(gradient(lambda v: losses.value_loss(v, returns, mask), value), [[-1, 0, 0]])
    assert not gradient(lambda r: losses.value_loss(value, r, mask), returns).any()


def slow_vtrace(log_rho, reward, discount, truncated, value, value_t):
    """IMPALA's eq. 1 as it is written, a sum over the future of every step, for one rollout."""
    steps = len(reward)
    behind = [value_t[t] if truncated[t] or t == steps - 1 else value[t + 1] for t in range(steps)]
    rho = [min(1.0, math.exp(x)) for x in log_rho]
    target = []
    for s in range(steps):
        total, factor = value[s], 1.0
        for t in range(s, steps):
            total += factor * rho[t] * (reward[t] + discount[t] * behind[t] - value[t])
            factor *= discount[t] * rho[t]
            if truncated[t]:
                break
        target.append(total)
    next_target = [value_t[t] if truncated[t] or t == steps - 1 else target[t + 1] for t in range(steps)]
    return target, [rho[t] * (reward[t] + discount[t] * next_target[t] - value[t]) for t in range(steps)]


@pytest.fixture
def rollouts():
    """Three rollouts of eight steps: one within an episode, one with a termination, one with a truncation."""
    rng = np.random.default_rng(4)
    names = ("log_rho", "reward", "discount", "truncated", "value", "value_t")
    found = {name: rng.normal(size=(3, 8)).astype(np.float32) for name in names}
    found["discount"], found["truncated"] = np.full((3, 8), 0.9, np.float32), np.zeros((3, 8), np.float32)
    found["discount"][1, 3], found["truncated"][2, 4] = 0, 1
    return found


def test_vtrace_against_the_papers_sum(rollouts):
    target, advantage = (np.asarray(x) for x in losses.vtrace(**rollouts))
    for i in range(3):
        slow = slow_vtrace(**{name: array[i] for name, array in rollouts.items()})
        np.testing.assert_allclose((target[i], advantage[i]), slow, atol=1e-5)


def test_no_gradient_flows_through_vtrace(rollouts):
    for name in ("log_rho", "value", "value_t"):
        for place in (0, 1):
            loss = gradient(lambda x: ops.sum(losses.vtrace(**{**rollouts, name: x})[place]), rollouts[name])  # noqa: B023
            assert not loss.any()


@pytest.mark.parametrize("weighted", [False, True])
def test_q_learning_loss(steps, weighted):
    """Huber's loss of the error of the action taken, weighted by sequence."""
    target = 3 * steps["advantage"]
    base = {"action": steps["action"], "mask": steps["mask"], "q_target": target}
    weight = np.array([0.2, 1.0, 0.5], np.float32) if weighted else np.ones(3, np.float32)
    if weighted:
        base["weight"] = weight
    found, metrics = Dqn().loss({"logits": steps["logits"]}, base)
    errors = {at: abs(target[at] - steps["logits"][at][steps["action"][at]]) for at in kept(steps["mask"])}
    assert min(errors.values()) < 1 < max(errors.values())
    slow = [weight[at[0]] * (0.5 * x**2 if x < 1 else x - 0.5) for at, x in errors.items()]
    np.testing.assert_allclose(found, np.mean(slow), rtol=1e-5)
    np.testing.assert_allclose(metrics["value_mean"], np.mean([steps["logits"][at].max() for at in errors]), rtol=1e-4)
    np.testing.assert_allclose(metrics["return_deviation"], np.std([target[at] for at in errors]), rtol=1e-4)
