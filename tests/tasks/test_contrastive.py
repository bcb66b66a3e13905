import numpy as np
import pytest
import tensorflow as tf
from gradients import learner_of

from gunreal.learning.network import Features
from gunreal.tasks.contrastive import Contrastive
from gunreal.testing import IMAGES

TASK = Contrastive(steps=3, units=4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unit(x):
    return x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + 0.01)


def slow_prediction(head, hidden, actions):
    """What follows a belief `[Fh]` along `actions`: a GRU (Cho et al. 2014, reset behind the product), step by step."""
    w, u, b = (v.numpy() for v in (head.action_kernel, head.recurrent_kernel, head.bias))
    start, prediction = ([v.numpy() for v in layer.trainable_variables] for layer in (head.start, head.prediction))
    n = head.units
    state = np.tanh(hidden @ start[0] + start[1])
    for action in actions:
        update = sigmoid(w[action, :n] + b[:n] + state @ u[:, :n])
        reset = sigmoid(w[action, n : 2 * n] + b[n : 2 * n] + state @ u[:, n : 2 * n])
        new = np.tanh(w[action, 2 * n :] + b[2 * n :] + reset * (state @ u[:, 2 * n :]))
        state = update * state + (1 - update) * new
    return 10 * unit(state @ prediction[0] + prediction[1])  # a temperature of 0.1


def test_predictions_follow_the_actions_taken():
    head = TASK.head(IMAGES)
    rng = np.random.default_rng(0)
    features = Features(*(rng.normal(size=(2, 6, size)).astype(np.float32) for size in (7, 5)))
    assert set(head(features)) == {"frames"}  # built before there is a batch
    head.bias.assign(rng.normal(size=12))
    action = rng.integers(3, size=(2, 6)).astype(np.int32)
    outputs = head(features, batch={"action": action})
    frame = [v.numpy() for v in head.frame.trainable_variables]
    np.testing.assert_allclose(outputs["frames"], unit(features.conv @ frame[0] + frame[1]), rtol=1e-4, atol=1e-5)
    assert [tuple(p.shape) for p in outputs["predictions"]] == [(2, 5, 4), (2, 4, 4), (2, 3, 4)]
    for ahead, predictions in enumerate(outputs["predictions"], 1):
        for b in range(2):
            for t in range(6 - ahead):
                wanted = slow_prediction(head, features.hidden[b, t], action[b, t : t + ahead])
                np.testing.assert_allclose(predictions[b, t], wanted, rtol=1e-4, atol=1e-5)


def slow_loss(frames, predictions, mask):
    """van den Oord et al. 2018, eq. 4, over all predictions within an episode; candidates are all unmasked frames."""
    candidates = frames[mask == 1]
    losses = []
    for ahead, of_distance in enumerate(predictions, 1):
        for b in range(len(mask)):
            for t in range(mask.shape[1] - ahead):
                if mask[b, t : t + ahead + 1].all():
                    scores = np.exp(candidates @ of_distance[b, t])
                    losses.append(-np.log(np.exp(frames[b, t + ahead] @ of_distance[b, t]) / scores.sum()))
    return np.mean(losses)


def outputs_of(rng, batch=3):
    predictions = [rng.normal(size=(batch, 6 - k, 4)).astype(np.float32) for k in (1, 2, 3)]
    return {"frames": rng.normal(size=(batch, 6, 4)).astype(np.float32), "predictions": predictions}


def test_loss_against_loops():
    outputs = outputs_of(np.random.default_rng(0))
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]], np.float32)  # a reset; padding
    loss = float(TASK.loss(outputs, {"mask": mask}))
    assert loss == pytest.approx(slow_loss(outputs["frames"], outputs["predictions"], mask), rel=1e-5)
    assert float(TASK.loss(outputs, {"mask": 0 * mask})) == 0


def test_both_sides_of_a_score_are_learned():
    outputs = {name: tf.nest.map_structure(tf.Variable, x) for name, x in outputs_of(np.random.default_rng(0)).items()}
    with tf.GradientTape() as tape:
        loss = TASK.loss(outputs, {"mask": np.ones((3, 6), np.float32)})
    for gradient in tape.gradient(loss, [outputs["frames"], *outputs["predictions"]]):
        assert np.abs(gradient).min() > 0


def test_frames_are_told_apart_after_some_updates():
    learner, batch = learner_of(Contrastive(weight=1.0, steps=3, units=16), IMAGES)
    losses = [learner.train(batch, 3e-3)["loss_cpc"] for _ in range(60)]
    assert losses[0] > 2.5  # of ln 20 or so
    assert losses[-1] < 0.5
