"""The torso: training's features are acting's; its unroll against a step-by-step computation, across episodes too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import gunreal
from gunreal.config.schema import Config
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning import losses
from gunreal.learning.network import Network
from gunreal.learning.registry import named
from gunreal.learning.torso import Torso
from gunreal.runtime import trainer

UNITS, STEPS, COUNT = 8, 6, 3
SPEC = Spec((1, 28, 28), 1, "uint8", 4, t_max=STEPS, state=2 * UNITS)
FIRST_STEPS = ((0, 4), (1, 0), (1, 1))  # (sequence, step) at which an episode begins


@pytest.fixture(scope="module")
def network():
    return Network(SPEC, (), named("lstm", hidden=UNITS), seed=3)


def inputs(seed=0):
    """Hidden features `[COUNT, STEPS, UNITS]` and the past."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(COUNT, STEPS, UNITS)).astype(np.float32)
    last_action = rng.integers(0, 4, (COUNT, STEPS)).astype(np.int32)
    last_reward = rng.normal(size=(COUNT, STEPS)).astype(np.float32)
    for at in FIRST_STEPS:
        last_action[at], last_reward[at] = -1, 0
    state, vector = rng.normal(size=(COUNT, 2 * UNITS)).astype(np.float32), np.zeros((COUNT, STEPS, 0), np.float32)
    return hidden, Past(state, last_action, last_reward, vector)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_lstm(weights, x, h, c):
    """One step of one sequence; Keras's gates are in the order input, forget, candidate, output."""
    i, f, g, o = np.split(x @ weights["kernel"] + h @ weights["recurrent_kernel"] + weights["bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def test_vectors_are_not_scaled():
    vectors = np.float32([[1, -300, 0.5, 7]])
    torso = Torso(Spec((2,), 2, "float32", 3), named("mlp"), "channels_last", "off", 0)
    np.testing.assert_array_equal(torso._input(vectors), vectors)


def test_unroll_against_slow_numpy(network):
    """A new episode forgets the state before it, even one that an observation has spoiled. Rewards are clipped."""
    hidden, past = inputs()
    past.last_reward[2, 1:3] = 50, -50
    past.state[1] = np.nan  # an episode begins at the first step of this sequence
    weights = {
        name.removeprefix("torso/lstm/"): v.numpy()
        for name, v in zip(network.names, network.trainable_variables, strict=True)
        if name.startswith("torso/lstm/")
    }
    assert {name: w.shape for name, w in weights.items()} == {
        "kernel": (UNITS + 4 + 1, 4 * UNITS),
        "recurrent_kernel": (UNITS, 4 * UNITS),
        "bias": (4 * UNITS,),
    }
    outputs, state = (x.numpy() for x in network.torso.unroll(hidden, past))
    for b in range(COUNT):
        h, c = np.split(past.state[b], 2)
        for t in range(STEPS):
            one_hot = np.zeros(4)
            if (b, t) in FIRST_STEPS:
                h, c = np.zeros(UNITS), np.zeros(UNITS)
            else:
                one_hot[past.last_action[b, t]] = 1
            reward = np.clip(past.last_reward[b, t], -10, 10)
            h, c = slow_lstm(weights, np.concatenate([hidden[b, t], one_hot, [reward]]), h, c)
            np.testing.assert_allclose(outputs[b, t], h, atol=1e-5)
        np.testing.assert_allclose(state[b], np.concatenate([h, c]), atol=1e-5)


def test_training_sees_what_acting_saw(tmp_path, monkeypatch):
    """Nothing is lost in the ring: while the weights stand still, the learned policy is the one that acted."""
    ratios = []

    def compare(self, batch):
        network, base = self._learner.network, batch["base"]
        hidden = network._features(batch)["base"].hidden
        log_pi = losses.log_probability(network.policy_value(hidden)["logits"], base["action"]).numpy()
        ratios.append((log_pi - base["log_mu"]) * base["mask"])
        batch.release()

    monkeypatch.setattr(trainer.Trainer, "work", compare)
    config = Config(env="gunreal/Catch-v0", network="lstm", hidden=UNITS, agents=6, min_batch=40)
    gunreal.train(dataclasses.replace(config, runner="serial", steps=600, logdir=str(tmp_path)), show=False)
    assert len(ratios) >= 10
    np.testing.assert_allclose(ratios, 0, atol=1e-5)


def test_gradients_flow_through_time_but_not_into_another_episode(network):
    hidden, past = inputs()
    hidden = tf.constant(hidden)
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        last = tf.reduce_sum(network.torso.unroll(hidden, past)[0][:, -1])
    gradient = np.abs(tape.gradient(last, hidden).numpy()).sum(-1)
    assert (gradient[0, :4] == 0).all() and (gradient[0, 4:] > 0).all()
    assert (gradient[1, :1] == 0).all() and (gradient[1, 1:] > 0).all()
    assert (gradient[2] > 0).all()
