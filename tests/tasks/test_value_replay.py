import numpy as np
import pytest
import tensorflow as tf
from rings import VECTOR, draws, episodes, make_segment, rows, targets

from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.value_replay import ValueReplay

TASK = ValueReplay()


def slow_return(segment, step, last, bootstrap):
    """`R_t = sum_i gamma^i r_{t+i+1} + gamma^n V(s_{t+n})`, term by term, up to the episode's termination."""
    total, factor = 0.0, 1.0
    for t in range(step, last + 1):
        total += factor * np.clip(float(rows(segment, "reward", t, 1)[0]), -0.5, 0.5)
        if rows(segment, "flags", t, 1)[0] & TERMINATED:
            return total
        factor *= VECTOR.discount
    return total + factor * bootstrap


def test_returns_against_the_sum_written_out():
    segment, rng = synthetic_segment(VECTOR._replace(reward_clip=0.5), {}, 300), np.random.default_rng(0)
    for first, length in draws(TASK, segment, 300):
        bootstrap = np.float32(rng.normal())
        returns = targets(TASK, segment, (first, length), bootstrap)["returns"]
        assert returns.shape == (4,) and returns.dtype == np.float32
        for step in range(first, first + length):
            if not rows(segment, "flags", step, 1)[0] & RESET:
                wanted = slow_return(segment, step, first + length - 1, float(bootstrap))
                np.testing.assert_allclose(returns[step - first], wanted, rtol=1e-5, atol=1e-6)
        assert not returns[length:].any()


def test_starts_are_uniform_over_the_steps_that_are_learned_from():
    segment = make_segment(VECTOR, flags := np.array(episodes("--T -t ---- --T --")))
    drawn = draws(TASK, segment, 8000)
    counts = np.bincount([first for first, _ in drawn], minlength=len(flags))
    allowed = flags & RESET == 0
    assert not counts[~allowed].any()
    expected = 8000 / allowed.sum()
    assert np.abs(counts[allowed] - expected).max() < 5 * expected**0.5
    for first, length in drawn[:200]:
        assert 1 <= length <= 4 and first + length <= len(flags)
        assert not (flags[first : first + length - 1] & TRUNCATED).any()


def test_loss_and_gradient_by_hand():
    value = tf.Variable([[1.0, 2.0], [0.0, 9.0]])
    batch = {"returns": tf.constant([[2.0, 0.0], [-1.0, 0.0]]), "mask": tf.constant([[1.0, 1.0], [1.0, 0.0]])}
    with tf.GradientTape() as tape:
        loss = TASK.loss({"value": value, "scale": 2.0}, batch)  # the returns' deviation, in units of which errors are
    # 0.5 (1 + 4 + 1) / 4 over three steps; d/dV = (V - R) / 4 / 3
    assert float(loss) == pytest.approx(0.25)
    np.testing.assert_allclose(tape.gradient(loss, value), [[-1 / 12, 2 / 12], [1 / 12, 0]], rtol=1e-6)


def test_bootstrap_is_the_critics_value():
    assert TASK.bootstrap({"value": np.array([[3.0], [4.0]])}).tolist() == [3, 4]
    assert TASK.head(VECTOR) is None
