import numpy as np
import pytest
import tensorflow as tf
from gradients import learner_of

from gunreal.tasks.self_prediction import SelfPrediction
from gunreal.testing import IMAGES

TASK = SelfPrediction(steps=3, units=4)


def unit(x):
    return x / np.sqrt((x**2).sum(axis=-1, keepdims=True))


def slow_prediction(head, features, actions):
    """What follows features `[F]` along `actions`, step by step (SPR, section 2.2)."""
    state, correction, projection, prediction = (
        [v.numpy() for v in layer.trainable_variables]
        for layer in (head.state, head.correction, head.projection, head.prediction)
    )
    for action in actions:
        hidden = np.maximum(features @ state[0] + state[1] + head.action_kernel.numpy()[action], 0)
        features = features + hidden @ correction[0] + correction[1]
    return unit((features @ projection[0] + projection[1]) @ prediction[0] + prediction[1])


def test_predictions_follow_the_actions_taken():
    head, rng = TASK.head(IMAGES), np.random.default_rng(0)
    features = rng.normal(size=(2, 6, 5)).astype(np.float32)
    assert set(head(features)) == {"targets"}  # built before there is a batch
    action = rng.integers(3, size=(2, 6)).astype(np.int32)
    mask = np.ones((2, 6), np.float32)
    mask[1, 4:] = 0
    outputs = head(features, batch={"action": action, "mask": mask})
    projection = [v.numpy() for v in head.projection.trainable_variables]
    targets = features @ projection[0] + projection[1]
    learned = targets[mask == 1]
    np.testing.assert_allclose(outputs["targets"], unit((targets - learned.mean(0)) / learned.std(0)), atol=1e-4)
    assert [tuple(p.shape) for p in outputs["predictions"]] == [(2, 5, 4), (2, 4, 4), (2, 3, 4)]
    for ahead, predictions in enumerate(outputs["predictions"], 1):
        for b in range(2):
            for t in range(6 - ahead):
                wanted = slow_prediction(head, features[b, t], action[b, t : t + ahead])
                np.testing.assert_allclose(predictions[b, t], wanted, atol=1e-4)


def outputs_of(rng):
    predictions = [unit(rng.normal(size=(3, 6 - k, 4))).astype(np.float32) for k in (1, 2, 3)]
    return {"targets": unit(rng.normal(size=(3, 6, 4))).astype(np.float32), "predictions": predictions}


def test_loss_against_loops():
    outputs = outputs_of(np.random.default_rng(0))
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]], np.float32)  # a reset; padding
    losses = [
        1 - predictions[b, t] @ outputs["targets"][b, t + ahead]
        for ahead, predictions in enumerate(outputs["predictions"], 1)
        for b in range(3)
        for t in range(6 - ahead)
        if mask[b, t : t + ahead + 1].all()
    ]
    assert len(losses) == (5 + 4 + 3) + (1 + 2 + 1) + (2 + 1)
    assert float(TASK.loss(outputs, {"mask": mask})) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(TASK.loss(outputs, {"mask": 0 * mask})) == 0


def test_no_gradient_flows_into_the_targets():
    head, features = TASK.head(IMAGES), tf.Variable(np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32))
    with tf.GradientTape(persistent=True) as tape:
        outputs = head(features, batch={"action": np.zeros((2, 6), np.int32), "mask": np.ones((2, 6), np.float32)})
        targets, predictions = tf.reduce_sum(outputs["targets"][..., 0]), tf.reduce_sum(outputs["predictions"][0])
    assert tape.gradient(targets, features) is None
    assert np.abs(tape.gradient(predictions, features)[:, :-1]).min() > 0


def test_features_become_predictable_and_do_not_collapse():
    learner, batch = learner_of(SelfPrediction(weight=1.0, steps=3, units=16), IMAGES)
    before = spread(learner, batch)
    losses = [learner.train(batch, 3e-3)["loss_spr"] for _ in range(150)]
    assert losses[0] > 0.8 and losses[-1] < 0.2
    assert spread(learner, batch) > before


def spread(learner, batch):
    """The standard deviation of the features between observations, relative to their mean. 0 if they collapsed."""
    hidden = learner.network.torso.features(np.concatenate(batch["spr"]["observations"])).hidden.numpy()
    return hidden.std(axis=0).mean() / hidden.mean()
