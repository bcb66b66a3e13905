import numpy as np
import pytest
import tensorflow as tf
from gradients import batch_of
from learners import A3C

import gunreal
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning.backend import make_learner
from gunreal.learning.network import Network
from gunreal.learning.registry import named
from gunreal.tasks.self_prediction import SelfPrediction

FRAMES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
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
    head, rng = TASK.head(FRAMES), np.random.default_rng(0)
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
    head, features = TASK.head(FRAMES), tf.Variable(np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32))
    with tf.GradientTape(persistent=True) as tape:
        outputs = head(features, batch={"action": np.zeros((2, 6), np.int32), "mask": np.ones((2, 6), np.float32)})
        targets, predictions = tf.reduce_sum(outputs["targets"][..., 0]), tf.reduce_sum(outputs["predictions"][0])
    assert tape.gradient(targets, features) is None
    assert np.abs(tape.gradient(predictions, features)[:, :-1]).min() > 0


def test_features_become_predictable_and_do_not_collapse():
    task = SelfPrediction(weight=1.0, steps=3, units=16)
    observations, batch = batch_of(task, synthetic_segment(FRAMES, {}, 200), 4)
    nothing = np.zeros((4, 6), np.float32)
    base = {"action": nothing.astype(np.int32), "returns": nothing, "mask": nothing}
    network = Network(FRAMES, [task], named("small", hidden=32))
    learner = make_learner(network, gunreal.Config(**A3C, entropy=0.0))
    rows = {"observations": observations.reshape(4, 6, *FRAMES.observation)}
    whole = {"base": base | rows, "spr": batch | rows}
    before = spread(network, observations)
    losses = [learner.train(whole, 3e-3)["loss_spr"] for _ in range(150)]
    assert losses[0] > 0.8 and losses[-1] < 0.2
    assert spread(network, observations) > before


def spread(network, observations):
    """The standard deviation of the features between observations, relative to their mean. 0 if they collapsed."""
    hidden = network.torso.features(observations).hidden.numpy()
    return hidden.std(axis=0).mean() / hidden.mean()
