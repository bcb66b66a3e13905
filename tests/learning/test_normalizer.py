"""Running moments against NumPy over all samples at once; observations and returns that a network normalizes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import CONFIG, SPEC, make_batch, make_learner, seen

from gunreal.learning.normalizer import Moments, Statistics, merge, moments
from gunreal.learning.registry import named


def numpy(x):
    import keras

    return keras.ops.convert_to_numpy(x)


def absorb(statistics, new):
    for variable, value in zip(statistics.variables, statistics.merged(new), strict=True):
        variable.assign(value)


@pytest.mark.parametrize(("axes", "kept"), [((0,), (2, 3, 4)), ((0, 2, 3), (2, 1, 1))])
def test_moments_are_those_of_the_samples_that_count(axes, kept):
    x = np.random.default_rng(0).normal(3, 2, (6, 2, 3, 4)).astype(np.float32)
    weight = np.float32([1, 0, 1, 1, 0, 1])
    found = moments(x, weight, axes)
    chosen = x[weight > 0]
    assert numpy(found.mean).shape == kept and float(found.count) == 4
    np.testing.assert_allclose(numpy(found.mean), chosen.mean(axes).reshape(kept), rtol=1e-5)
    np.testing.assert_allclose(numpy(found.variance), chosen.var(axes).reshape(kept), rtol=1e-5)


def test_merged_moments_are_those_of_all_samples():
    rng = np.random.default_rng(1)
    parts = [rng.normal(place, place + 1, (n, 3)).astype(np.float32) for place, n in enumerate((1, 5, 40))]
    statistics = Statistics((3,), 1e-3, 1e9)
    for part in parts:
        absorb(statistics, moments(part, np.ones(len(part), np.float32), (0,)))
    together, known = np.concatenate(parts), statistics.now()
    np.testing.assert_allclose(numpy(known.mean), together.mean(0), rtol=1e-5)
    np.testing.assert_allclose(numpy(known.variance), together.var(0), rtol=1e-5)
    assert float(known.count) == 46


def test_no_sample_changes_nothing():
    statistics = Statistics((2,), 1e-3, 1e9)
    absorb(statistics, moments(np.ones((3, 2), np.float32), np.zeros(3, np.float32), (0,)))
    assert [numpy(x).tolist() for x in statistics.now()] == [[0, 0], [1, 1], 0]


def test_old_samples_are_forgotten_once_there_are_most():
    known = Moments(np.float32(0), np.float32(1), np.float32(100))
    for _ in range(50):
        known = merge(known, Moments(np.float32(5), np.float32(0), np.float32(20)), 100.0, np)
    assert float(known.count) == 100
    assert float(known.mean) == pytest.approx(5, abs=0.01) and float(known.variance) == pytest.approx(0, abs=0.05)


def test_a_deviation_is_no_smaller_than_the_least():
    statistics = Statistics((2,), 0.05, 1e9)
    known = Moments(np.zeros(2, np.float32), np.float32([1e-6, 4.0]), np.float32(9))
    np.testing.assert_allclose(numpy(statistics.deviation(known)), [0.05, 2.0], rtol=1e-6)


@pytest.mark.parametrize(("kind", "axis"), [("element", 0), ("channel", (0, 2, 3))])
def test_the_network_sees_every_frame_of_a_stack_with_the_moments_of_what_was_trained_on(kind, axis):
    learner = make_learner(dataclasses.replace(CONFIG, normalize_observations=kind))
    batch = make_batch()
    learner.train(batch, 1e-3)
    newest = seen(batch)[:12, -1:] / np.float32(255)
    kept = newest[batch["base"]["mask"].ravel() > 0]
    mean, deviation = kept.mean(axis, keepdims=True), np.maximum(kept.std(axis, keepdims=True), 0.05)
    torso = learner.network.torso
    found = numpy(torso._input(seen(batch)))
    if found.shape[1:] != SPEC.observation:
        found = found.transpose(0, 3, 1, 2)
    expected = np.clip((seen(batch) / np.float32(255) - mean) / deviation, -5, 5)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_every_channel_of_stacked_frames_has_the_moments_of_the_newest_frame():
    from gunreal.learning.torso import Torso

    spec = SPEC._replace(frame=(3, 28, 36))
    torso = Torso(spec, named("mlp"), "channels_last", "channel", 0)
    frames = np.random.default_rng(0).random((8, 2, 3, 28, 36)) * np.array([255, 128, 64])[:, None, None]
    frames = frames.astype(np.uint8)
    observations = frames.reshape(8, *spec.observation)
    absorb(torso.statistics["observation"], torso.moments(observations, np.ones(8, np.float32))["observation"])
    newest = frames[:, -1] / 255
    mean, deviation = (x[:, None, None] for x in (newest.mean((0, 2, 3)), newest.std((0, 2, 3))))
    found = numpy(torso._input(observations)).reshape(frames.shape)
    np.testing.assert_allclose(found, np.clip((frames / 255 - mean) / deviation, -5, 5), atol=1e-3)


@pytest.mark.parametrize(("mean", "least", "most"), [(0.0, 0, 5), (1.0, -5, 0)])
def test_normalized_observations_are_clipped_at_five_deviations(mean, least, most):
    """Pixels between 0 and 1 are up to 20 of the least deviation, 0.05, away from these means."""
    learner = make_learner(dataclasses.replace(CONFIG, normalize_observations="element"))
    torso = learner.network.torso
    for variable, value in zip(torso.statistics["observation"].variables, (mean, 0.0, 9.0), strict=True):
        variable.assign(np.full(variable.shape, value, np.float32))
    found = numpy(torso._input(seen(make_batch())))
    assert (found.min(), found.max()) == (least, most)


def test_padded_rows_are_in_no_moments():
    """JAX pads a batch of 3 rollouts to 4; masked steps are in no moments either."""
    learner = make_learner()
    learner.train(make_batch(count=3), 1e-3)
    state = learner.get_state()
    assert state["statistics/observation/count"] == 10 and state["statistics/return/count"] == 10


def test_a_new_scale_of_returns_leaves_the_values_as_they_are():
    learner, other = (make_learner(dataclasses.replace(CONFIG, normalize_observations="off")) for _ in range(2))
    batch = make_batch()
    learner.train(batch, 0.0), other.train(batch, 0.0)
    batch["base"]["returns"] = batch["base"]["returns"] * 50 + 300
    logits, value = learner.predict("base", seen(batch))
    learner.train(batch, 0.0)
    state = learner.get_state()
    assert state["statistics/return/mean"] > 100 and state["statistics/return/variance"] > 1000
    np.testing.assert_allclose(learner.predict("base", seen(batch))[1], value, atol=1e-2)
    before = other.get_state()
    assert not np.allclose(state["weights/value/bias"], before["weights/value/bias"])


def test_the_first_returns_give_the_first_values():
    """What the network predicted before would be kept at a distance of many deviations, and dominate all losses."""
    learner, batch = make_learner(), make_batch()
    batch["base"]["returns"] = batch["base"]["returns"] + 300
    learner.train(batch, 0.0)
    _, value = learner.predict("base", seen(batch))
    deviation = np.sqrt(learner.get_state()["statistics/return/variance"])
    np.testing.assert_allclose(value, learner.get_state()["statistics/return/mean"], atol=4 * deviation)
    assert learner.train(batch, 0.0)["loss_value"] < 10


def test_errors_of_values_are_in_units_of_the_returns_deviation():
    """Rewards of another unit have the same losses once their scale is known."""
    found = []
    for unit in (1e3, 1e6):
        learner, batch = make_learner(), make_batch()
        batch["base"]["returns"] = batch["base"]["returns"] * np.float32(unit)
        for _ in range(3):
            metrics = learner.train(batch, 0.0)
        found.append(metrics)
    for name in ("loss_policy", "loss_value", "loss_base"):
        assert found[1][name] == pytest.approx(found[0][name], rel=0.02), name
    assert found[1]["return_deviation"] == pytest.approx(1000 * found[0]["return_deviation"], rel=1e-3)
