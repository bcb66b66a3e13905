"""The torso: training's features are acting's; its unroll against a step-by-step computation, across episodes too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import A3C

import gunreal
from gunreal.config.schema import Config
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.backend import make_learner
from gunreal.learning.registry import named

UNITS, STEPS, COUNT = 8, 6, 3
SPEC = Spec((1, 28, 28), 1, "uint8", 4, t_max=STEPS, state=2 * UNITS)
FIRST_STEPS = ((0, 4), (1, 0), (1, 1))  # (sequence, step) at which an episode begins


@pytest.fixture(scope="module")
def network():
    devices.select("tensorflow")
    from gunreal.learning.network import Network

    return Network(SPEC, (), named("lstm", hidden=UNITS), seed=3)


def make_past(rng):
    last_action = rng.integers(0, 4, (COUNT, STEPS)).astype(np.int32)
    last_reward = rng.normal(size=(COUNT, STEPS)).astype(np.float32)
    for at in FIRST_STEPS:
        last_action[at], last_reward[at] = -1, 0
    state, vector = rng.normal(size=(COUNT, 2 * UNITS)).astype(np.float32), np.zeros((COUNT, STEPS, 0), np.float32)
    return Past(state, last_action, last_reward, vector)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_lstm(weights, x, h, c):
    """One step of one sequence; Keras's gates are in the order input, forget, candidate, output."""
    i, f, g, o = np.split(x @ weights["kernel"] + h @ weights["recurrent_kernel"] + weights["bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("kind", ["small", "mlp"])
def test_the_compiled_input_is_the_input(kind):
    """Frames are cast, scaled and turned in one compiled pass, as by one operation after the other."""
    devices.select("tensorflow")
    from gunreal.learning.torso import Torso

    frames = np.random.default_rng(0).integers(0, 256, (5, 4, 36, 36), np.uint8)
    torso = Torso(Spec((1, 36, 36), 4, "uint8", 3), named(kind), "channels_last", "element", 0, devices.fused)
    assert torso._fused_input != torso._input
    np.testing.assert_array_equal(torso._input(frames), torso._fused_input(frames))


def test_vectors_are_not_scaled():
    devices.select("tensorflow")
    from gunreal.learning.torso import Torso

    vectors = np.float32([[1, -300, 0.5, 7]])
    torso = Torso(Spec((2,), 2, "float32", 3), named("mlp"), "channels_last", "off", 0)
    np.testing.assert_array_equal(torso._input(vectors), vectors)


def test_a_new_episode_forgets_a_state_that_is_not_finite(network):
    """An observation that is not a number would otherwise spoil all later episodes."""
    rng = np.random.default_rng(0)
    hidden, past = rng.normal(size=(COUNT, STEPS, UNITS)).astype(np.float32), make_past(rng)
    past.state[1] = np.nan  # an episode begins at the first step of this sequence
    outputs, _ = (x.numpy() for x in network.torso.unroll(hidden, past))
    assert np.isfinite(outputs).all()


def test_large_rewards_do_not_saturate_the_cell(network):
    rng = np.random.default_rng(0)
    hidden, past = rng.normal(size=(COUNT, STEPS, UNITS)).astype(np.float32), make_past(rng)

    def outputs(reward):
        return network.torso.unroll(hidden, past._replace(last_reward=np.full_like(past.last_reward, reward)))[
            0
        ].numpy()

    np.testing.assert_array_equal(outputs(1e4), outputs(10))
    assert np.ptp(outputs(1e4), axis=0).min() > 1e-3 and np.abs(outputs(9) - outputs(10)).max() > 1e-3


def test_unroll_against_slow_numpy(network):
    rng = np.random.default_rng(0)
    hidden, past = rng.normal(size=(COUNT, STEPS, UNITS)).astype(np.float32), make_past(rng)
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
            h, c = slow_lstm(weights, np.concatenate([hidden[b, t], one_hot, [past.last_reward[b, t]]]), h, c)
            np.testing.assert_allclose(outputs[b, t], h, atol=1e-5)
        np.testing.assert_allclose(state[b], np.concatenate([h, c]), atol=1e-5)


def test_acting_step_by_step_is_the_unroll(network):
    """What agents get, one prediction after the other with the state handed on, is what training computes."""
    learner = make_learner(network, Config(**A3C, entropy=0.0))
    rng = np.random.default_rng(1)
    observations = rng.integers(0, 256, (COUNT, STEPS, *SPEC.observation), dtype=np.uint8)
    past = make_past(rng)
    state, values = past.state, []
    for t in range(STEPS):
        step = Past(state, *(array[:, t : t + 1] for array in past[1:]))
        logits, value, state = learner.predict("base", observations[:, t], step)
        assert logits.shape == (COUNT, 4) and state.shape == past.state.shape
        values.append(value)
    features = network.torso.features(observations.reshape(-1, *SPEC.observation))
    hidden, last = network.torso.unroll(features.hidden.numpy().reshape(COUNT, STEPS, UNITS), past)
    np.testing.assert_allclose(np.stack(values, 1), network.policy_value(hidden)["value"].numpy(), atol=1e-5)
    np.testing.assert_allclose(state, last.numpy(), atol=1e-5)


def test_training_sees_what_acting_saw(tmp_path, monkeypatch):
    """Nothing is lost in the ring: while the weights stand still, the learned policy is the one that acted."""
    ratios = []

    def compare(self, batch):
        network, base = self._learner.network, batch["base"]
        hidden = network._features(batch)["base"].hidden
        log_pi = losses.log_probability(network.policy_value(hidden)["logits"], base["action"]).numpy()
        ratios.append((log_pi - base["log_mu"]) * base["mask"])
        batch.release()

    from gunreal.learning import losses
    from gunreal.runtime import trainer

    monkeypatch.setattr(trainer.Trainer, "work", compare)
    config = Config(env="gunreal/Catch-v0", network="lstm", hidden=UNITS, agents=6, min_batch=40)
    gunreal.train(dataclasses.replace(config, runner="serial", steps=600, logdir=str(tmp_path)), show=False)
    assert len(ratios) >= 10
    np.testing.assert_allclose(ratios, 0, atol=1e-5)


def test_the_past_ends_with_the_episode(network):
    rng = np.random.default_rng(2)
    hidden, past = rng.normal(size=(COUNT, STEPS, UNITS)).astype(np.float32), make_past(rng)
    other = past._replace(state=past.state + 1)
    one, two = (network.torso.unroll(hidden, p)[0].numpy() for p in (past, other))
    np.testing.assert_array_equal(one[0, 4:], two[0, 4:])
    np.testing.assert_array_equal(one[1], two[1])
    assert (one[0, :4] != two[0, :4]).all() and (one[2] != two[2]).any()


def test_gradients_flow_through_time_but_not_into_another_episode(network):
    import tensorflow as tf

    rng = np.random.default_rng(3)
    hidden, past = tf.constant(rng.normal(size=(COUNT, STEPS, UNITS)), tf.float32), make_past(rng)
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        last = tf.reduce_sum(network.torso.unroll(hidden, past)[0][:, -1])
    gradient = np.abs(tape.gradient(last, hidden).numpy()).sum(-1)
    assert (gradient[0, :4] == 0).all() and (gradient[0, 4:] > 0).all()
    assert (gradient[1, :1] == 0).all() and (gradient[1, 1:] > 0).all()
    assert (gradient[2] > 0).all()
