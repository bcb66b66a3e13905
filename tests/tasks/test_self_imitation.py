import numpy as np
import pytest
import tensorflow as tf
from rings import VECTOR, episodes, make_segment, targets

from gunreal.tasks.self_imitation import SelfImitation
from gunreal.tasks.value_replay import ValueReplay

TASK = SelfImitation(value_weight=0.5)


def test_targets_are_those_of_value_replay_and_the_actions():
    segment = make_segment(VECTOR, episodes("-T --"), [1, 0.5, 0, 5, 0], actions=[2, 1, 0, 1, 2])
    found, of_values = (targets(task, segment, (0, 3), 2) for task in (TASK, ValueReplay()))
    assert found["action"].tolist() == [2, 1, 0, 0] and found["action"].dtype == np.int32
    np.testing.assert_array_equal(found["returns"], of_values["returns"])


def test_loss_against_the_papers_formula():
    """Oh et al. 2018, eq. 1 to 3, for returns and values in units of the returns' standard deviation."""
    rng = np.random.default_rng(0)
    logits, value, returns = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5)), rng.normal(size=(2, 5))
    action, mask = rng.integers(3, size=(2, 5)), np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0]])
    losses = []
    for b in range(2):
        for t in range(5):
            if mask[b, t]:
                gain = max((returns[b, t] - value[b, t]) / 2, 0)
                probability = np.exp(logits[b, t, action[b, t]]) / np.exp(logits[b, t]).sum()
                losses.append(-np.log(probability) * gain + 0.5 * 0.5 * gain**2)
    outputs = {"logits": np.float32(logits), "value": np.float32(value), "scale": 2.0}
    batch = {"returns": np.float32(returns), "action": np.int32(action), "mask": np.float32(mask)}
    assert float(TASK.loss(outputs, batch)) == pytest.approx(np.mean(losses), rel=1e-5)


def test_only_what_went_better_than_expected_is_repeated():
    logits, value = tf.Variable(np.zeros((1, 2, 3), np.float32)), tf.Variable([[0.0, 0.0]])
    batch = {"returns": tf.constant([[1.0, -1.0]]), "action": tf.constant([[0, 0]]), "mask": tf.ones((1, 2))}
    with tf.GradientTape() as tape:
        loss = TASK.loss({"logits": logits, "value": value, "scale": 1.0}, batch)
    to_logits, to_value = tape.gradient(loss, [logits, value])
    np.testing.assert_allclose(to_logits[0], [[-1 / 3, 1 / 6, 1 / 6], [0, 0, 0]], rtol=1e-5)  # (pi - onehot) / 2
    np.testing.assert_allclose(to_value, [[-0.25, 0]], rtol=1e-5)  # the value's part only
