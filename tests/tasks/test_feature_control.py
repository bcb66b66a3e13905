import numpy as np
import pytest
import tensorflow as tf
from rings import VECTOR, draws, rows, targets

from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.feature_control import FeatureControl

UNITS = 5
TASK = FeatureControl(discount=0.5)


def learned(task, segment, sequences, features, value):
    """The returns that `task.loss` regresses on, `[B, T, U]`, where `features` `[steps, U]` are those of every step and
    `value` `[steps, U]` is `max_a Q`; and the rows' mask. The batch is made as the trainer makes it."""
    steps = np.arange(VECTOR.t_max)
    found, masks, seen = [], [], []
    for first, length in sequences:
        bootstrap = np.stack([value[first + length], features[first + length]])
        found.append(targets(task, segment, (first, length), bootstrap))
        seen.append(features[first + np.minimum(steps, length - 1)])
        masks.append((steps < length) & (np.resize(rows(segment, "flags", first, length), len(steps)) & RESET == 0))
    batch = {name: tf.constant(np.stack([t[name] for t in found])) for name in found[0]}
    batch["mask"] = tf.constant(np.array(masks, np.float32))
    return task.returns(tf.constant(np.array(seen)), batch).numpy(), np.array(masks)


def slow_return(segment, t, end, features, value, discount, reward):
    """`R_t = (1 - gamma) r_{t+1} + gamma R_{t+1}`; r is the activation of the next state, or how far it moved."""
    r = (1 - discount) * (features[t + 1] if reward == "activation" else np.abs(features[t + 1] - features[t]))
    if rows(segment, "flags", t, 1)[0] & TERMINATED:
        return r
    following = value[end] if t + 1 == end else slow_return(segment, t + 1, end, features, value, discount, reward)
    return r + discount * following


@pytest.mark.parametrize("reward", ["activation", "change"])
def test_returns_against_the_recursion(reward):
    task = FeatureControl(discount=0.8, reward=reward)
    segment = synthetic_segment(VECTOR, {}, 79)  # the ring has not come round: steps are rows
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, UNITS)).astype(np.float32)
    value = rng.normal(size=(90, UNITS)).astype(np.float32)
    sequences = draws(task, segment, 200)
    returns, masks = learned(task, segment, sequences, features, value)
    ends = set()
    for (first, length), of_sequence, mask in zip(sequences, returns, masks, strict=True):
        assert mask.tolist() == [row < length for row in range(VECTOR.t_max)]  # of one episode, no reset in it
        for t in range(length):
            wanted = slow_return(segment, first + t, first + length, features, value, 0.8, reward)
            np.testing.assert_allclose(of_sequence[t], wanted, rtol=1e-4, atol=1e-5)
        assert not of_sequence[length:].any()
        ends.add((length, int(rows(segment, "flags", first + length - 1, 1)[0] & (TERMINATED | TRUNCATED))))
    assert {(4, 0), (1, TERMINATED), (1, TRUNCATED), (4, TERMINATED), (4, TRUNCATED)} <= ends


def test_bootstrap_is_the_best_action_and_the_activation():
    q = np.zeros((2, 1, 3, UNITS), np.float32)
    q[0, 0, :, 1], q[1, 0, 2, 4] = [-3, -1, -2], 7
    features = np.arange(2 * UNITS, dtype=np.float32).reshape(2, 1, UNITS)
    found = TASK.bootstrap({"q": tf.constant(q), "features": tf.constant(features)}).numpy()
    assert found.shape == (2, 2, UNITS)
    assert found[:, 0].tolist() == [[0, -1, 0, 0, 0], [0, 0, 0, 0, 7]]
    np.testing.assert_array_equal(found[:, 1], features[:, 0])


def test_loss_and_gradient_by_hand():
    # One sequence of two steps and a padded one, two actions, two units; discount 0.5
    q = np.zeros((1, 3, 2, 2), np.float32)
    q[0, 0, 1, 0] = 1  # the action taken at step 0
    q[0, 0, 0, 0] = q[0, 2] = 50  # another action, and padding
    features = np.array([[[1, 0], [4, 0], [9, 9]]], np.float32)
    batch = {
        "action": np.array([[1, 0, 0]], np.int32),
        "tail": np.array([[0.25, 0.5, 0]], np.float32),
        "value": np.array([[4, 0]], np.float32),
        "features": np.array([[6, 0]], np.float32),
        "mask": np.array([[1, 1, 0]], np.float32),
    }
    # unit 0: R_1 = 0.5 * 6 + 0.5 * 4 = 5, R_0 = 0.5 * 4 + 0.5 * 5 = 4.5; unit 1: 0
    outputs = tf.Variable(q)
    with tf.GradientTape() as tape:
        loss = TASK.loss({"q": outputs, "features": tf.constant(features)}, batch)
    assert float(loss) == pytest.approx(0.5 * (3.5**2 + 5**2) / 2 / 2)  # mean over two units, two steps
    gradient = np.zeros_like(q)
    gradient[0, 0, 1, 0], gradient[0, 1, 0, 0] = -3.5 / 4, -5 / 4
    np.testing.assert_allclose(tape.gradient(loss, outputs), gradient, rtol=1e-5)


def test_head_is_the_dueling_sum_for_every_unit_of_its_input():
    head = TASK.head(VECTOR)
    features = np.random.default_rng(0).normal(size=(2, 4, UNITS)).astype(np.float32)
    outputs = head(features)
    q = outputs["q"].numpy()
    assert q.shape == (2, 4, 3, UNITS)
    scale = np.sqrt((features**2).mean(axis=-1, keepdims=True))
    np.testing.assert_allclose(outputs["features"], features / scale, rtol=1e-4)
    assert not np.any(head(0 * features)["features"])
    dense, value, advantage = (
        [v.numpy() for v in layer.trainable_variables] for layer in (head.dense, head.value, head.advantage)
    )
    hidden = np.maximum(features @ dense[0] + dense[1], 0)
    assert hidden.shape[-1] == 128
    v = hidden @ value[0] + value[1]
    a = (hidden @ advantage[0] + advantage[1]).reshape(2, 4, 3, UNITS)
    np.testing.assert_allclose(q, v[:, :, None] + a - a.mean(axis=2, keepdims=True), rtol=1e-4, atol=1e-5)


def test_no_gradient_flows_into_the_targets():
    head = TASK.head(VECTOR)
    features = tf.Variable(np.random.default_rng(0).random((1, 4, UNITS), np.float32))
    batch = {
        "action": np.zeros((1, 4), np.int32),
        "tail": np.ones((1, 4), np.float32),
        "value": np.ones((1, UNITS), np.float32),
        "features": np.ones((1, UNITS), np.float32),
        "mask": np.ones((1, 4), np.float32),
    }
    with tf.GradientTape(persistent=True) as tape:
        outputs = head(features)
        through_targets = TASK.loss({**outputs, "q": tf.stop_gradient(outputs["q"])}, batch)
        through_q = TASK.loss(outputs, batch)
    assert tape.gradient(through_targets, features) is None
    assert np.abs(tape.gradient(through_q, features)).max() > 0
