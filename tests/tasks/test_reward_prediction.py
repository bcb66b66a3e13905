import numpy as np
import pytest
import tensorflow as tf
from rings import VECTOR, draws, episodes, make_segment, targets

from gunreal.tasks.reward_prediction import RewardPrediction

TASK = RewardPrediction()


def thirds(segment, count):
    return np.array([first + 2 for first, _ in draws(TASK, segment, count)])


def test_half_of_the_draws_are_rewarding_however_rare_or_common_rewards_are():
    rewards = np.zeros(80)
    rewards[[17, 61]] = 1, -1
    steps = thirds(make_segment(VECTOR, episodes("-" * 80), rewards), 4000)
    counts = np.bincount(steps, minlength=80)
    rewarding = counts[17] + counts[61]
    assert abs(rewarding - 2000) < 5 * 1000**0.5  # five standard deviations
    assert abs(counts[17] - counts[61]) < 5 * rewarding**0.5
    others = np.delete(counts, [0, 1, 17, 61])
    assert counts[:2].sum() == 0 and others.min() > 0 and others.max() < 60  # 26 each on average
    common = thirds(make_segment(VECTOR, episodes("-" * 80), np.arange(80) != 40), 2000)
    assert abs((common == 40).sum() - 1000) < 5 * 500**0.5


@pytest.mark.parametrize("reward", [0.0, 2.0])
def test_a_missing_kind_of_reward_is_replaced_by_the_other(reward):
    steps = thirds(make_segment(VECTOR, episodes("-" * 12), np.full(12, reward)), 500)
    assert set(steps) == set(range(2, 12))


def test_three_frames_are_of_one_episode_and_the_terminal_reward_counts():
    flags = episodes("--T -T ---t ---")  # rows 0 1 2T 3R | 4 5T 6R | 7 8 9 10t 11R | 12 13 14
    rewards = np.ones(15)
    segment = make_segment(VECTOR, flags, rewards)
    assert set(thirds(segment, 500)) == {2, 9, 10, 14}
    assert targets(TASK, segment, (0, 3))["class"] == 1  # the terminating step's reward


def test_nothing_suitable():
    assert draws(TASK, make_segment(VECTOR, []), 10) == [None] * 10
    assert draws(TASK, make_segment(VECTOR, episodes("--")), 10) == [None] * 10
    assert draws(TASK, make_segment(VECTOR, episodes("-T -t T T -T -")), 10) == [None] * 10
    assert set(draws(TASK, make_segment(VECTOR, episodes("---")), 10)) == {(0, 3)}


def test_the_oldest_frames_are_not_left_behind_when_the_ring_wraps():
    segment = make_segment(VECTOR, episodes("-" * 300), replay_size=20)
    assert set(thirds(segment, 1000)) == set(range(282, 300))


@pytest.mark.parametrize(("reward", "wanted"), [(0, 0), (0.01, 1), (7, 1), (-0.5, 2)])
def test_class_is_the_sign_of_the_reward_behind_the_third_frame(reward, wanted):
    segment = make_segment(VECTOR, episodes("-----"), [1, -1, 1, reward, -1])
    target = targets(TASK, segment, (1, 3))["class"]
    assert target == wanted and target.shape == () and target.dtype == np.int32


def test_loss_and_gradient_by_hand():
    logits = tf.Variable([[0.0, 0.0, 0.0], [np.log(2.0), 0.0, 0.0], [9.0, -9.0, 9.0]])
    batch = {
        "class": tf.constant([2, 0, 1], tf.int32),
        "mask": tf.constant([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
    }
    with tf.GradientTape() as tape:
        loss = TASK.loss(logits, batch)
    assert float(loss) == pytest.approx((np.log(3) - np.log(0.5)) / 2)
    # softmax minus one-hot, over the two that count
    wanted = [[1 / 6, 1 / 6, -1 / 3], [-1 / 4, 1 / 8, 1 / 8], [0, 0, 0]]
    np.testing.assert_allclose(tape.gradient(loss, logits), wanted, rtol=1e-5, atol=1e-7)


def test_head_sees_three_frames_of_convolution_features():
    head = TASK.head(VECTOR)
    features = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    logits = head(features).numpy()
    assert logits.shape == (4, 3)
    (w1, b1, w2, b2) = head.get_weights()
    assert w1.shape == (15, 128)
    np.testing.assert_allclose(logits, np.maximum(features.reshape(4, 15) @ w1 + b1, 0) @ w2 + b2, rtol=1e-4, atol=1e-5)
    assert TASK.features == "conv" and TASK.length(20) == 3 and TASK.bootstrap is None
