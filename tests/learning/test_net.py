"""What a head may ask of the network: other features, policy and value, random numbers, and moving averages."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import layers, ops
from learners import CONFIG, Fit, assert_equal_states, make_batch, make_learner, make_past, seen

from gunreal.config.schema import ConfigError


class Views(layers.Layer):
    """Compares what it receives with the features of the same observations, and of others."""

    def build(self, input_shape):
        self.scale = self.add_weight((), "ones", name="scale")

    def call(self, x, batch=None, net=None):
        if net is None:
            return {"x": self.scale * x}
        again, other = net.features(net.observations), net.features(ops.flip(net.observations, axis=-1))
        outputs = net.policy_value(x)
        draws = {"first": net.draws(2, 3), "second": net.draws(2, 3)}
        return {"x": self.scale * x, "again": again, "other": other, "value": outputs["value"], **draws}


@dataclasses.dataclass(frozen=True)
class Compared(Fit):
    name: ClassVar[str] = "fit"  # so that the batches of `Fit` serve
    features: ClassVar[str] = "hidden"
    bootstrap: ClassVar[None] = None
    weight: float = 1.0

    def head(self, spec):
        return Views()

    def loss(self, outputs, batch):
        metrics = {name: ops.mean(ops.abs(outputs["x"] - outputs[name])) for name in ("again", "other")}
        for name in ("first", "second"):
            draws = outputs[name]
            metrics |= {name: draws[1, 0, 2], f"{name}_least": ops.min(draws), f"{name}_most": ops.max(draws)}
        metrics["rows"] = ops.cast(ops.shape(outputs["first"])[0], "float32")
        return ops.mean(outputs["other"] * outputs["first"][:, :1, :1]) + ops.mean(outputs["value"]), metrics


def batch_for(kind, count=3):
    batch = make_batch(count)
    if kind == "lstm":
        batch["base"]["past"], batch["fit"]["past"] = make_past(count, 4), make_past(count, 3, 1)
    return batch


@pytest.mark.parametrize("kind", ["small", "lstm"])
def test_features_of_the_same_and_of_other_observations(kind):
    learner = make_learner(tasks=(Compared(),), kind=kind)
    metrics = learner.gradient(batch_for(kind)).metrics
    assert metrics["fit_again"] == pytest.approx(0, abs=1e-6)
    assert metrics["fit_other"] > 1e-3


def test_the_gradient_of_other_observations_reaches_the_torso():
    """All but the observations of the task is masked, and the loss contains their features in the second pass only."""
    learner, batch = make_learner(tasks=(Compared(),)), make_batch()
    batch["base"]["mask"][...] = 0
    gradient = dict(zip(learner.network.names, learner.gradient(batch, 0.0).values, strict=True))
    conv = [np.asarray(value) for name, value in gradient.items() if name.startswith("torso/")]
    assert all(np.abs(array).max() > 0 for array in conv)
    assert np.asarray(gradient["value/bias"]) == pytest.approx(1)


def drawn(learner, count=3):
    metrics = learner.gradient(batch_for("small", count)).metrics
    assert metrics["fit_rows"] == count
    assert 0 <= metrics["fit_first_least"] < metrics["fit_first_most"] < 1
    return metrics["fit_first"], metrics["fit_second"]


def test_draws_depend_on_the_seed_the_update_and_the_call_alone():
    learner = make_learner(tasks=(Compared(),))
    first, second = found = drawn(learner)
    assert first != second
    assert drawn(learner) == found
    learner.version += 1
    assert not set(drawn(learner)) & set(found)
    assert not set(drawn(make_learner(tasks=(Compared(),), seed=4))) & set(found)


def test_observations_of_another_shape_are_refused():
    class Cropped(Compared):
        def head(self, spec):
            class Crop(Views):
                def call(self, x, batch=None, net=None):
                    return super().call(x) if net is None else net.features(net.observations[..., 1:])

            return Crop()

    with pytest.raises(ConfigError, match=r"^the head of task 'fit' failed.*give it \[B, 3, 2, 28, 36\]") as error:
        make_learner(tasks=(Cropped(),), new=True).gradient(make_batch())
    assert "\n" not in str(error.value)


def test_a_head_of_low_precision_sees_features_that_the_moments_normalize():
    config = dataclasses.replace(CONFIG, precision="bfloat16", normalize_observations="element", normalize_returns=True)
    metrics = make_learner(config, tasks=(Compared(),)).train(make_batch(), 0.01)
    assert not metrics["skipped"]
    assert keras.config.dtype_policy().name == "float32"


class AverageViews(layers.Layer):
    """Compares the averages with the network."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4, name="dense")

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, x, batch=None, net=None):
        found = {"x": x, "head": self.dense(x)}
        if net is None:
            return found
        averaged = net.average.features(net.observations)
        return {**found, "average_x": averaged, "average_head": net.average.head(averaged)["head"]}


@dataclasses.dataclass(frozen=True)
class Averaged(Compared):
    average: float = 0.25

    def head(self, spec):
        return AverageViews()

    def loss(self, outputs, batch):
        metrics = {name: ops.mean(ops.abs(outputs[name] - outputs[f"average_{name}"])) for name in ("x", "head")}
        return ops.mean(outputs["average_x"]) + ops.mean(outputs["average_head"]), metrics


def averages(state):
    return {name.removeprefix("average/fit/"): array for name, array in state.items() if name.startswith("average/")}


@pytest.mark.parametrize("kind", ["small", "lstm"])
def test_averages_move_towards_the_weights_and_pass_no_gradient_on(kind):
    learner, batch = make_learner(tasks=(Averaged(),), kind=kind), batch_for(kind)
    before = learner.get_state()
    assert {name.split("/")[0] for name in averages(before)} == {"torso", "fit"}
    for name, array in averages(before).items():
        np.testing.assert_array_equal(array, before[f"weights/{name}"])
    batch["base"]["mask"][...] = 0
    metrics = learner.gradient(batch, 0.0).metrics
    assert max(metrics["fit_x"], metrics["fit_head"]) < 1e-6
    assert metrics["grad_norm"] == 0
    batch["base"]["mask"][...] = 1
    learner.train(batch, 0.01)
    after = learner.get_state()
    moved = 0
    for name, array in averages(after).items():
        old, new = before[f"weights/{name}"], after[f"weights/{name}"]
        np.testing.assert_allclose(array, old + 0.25 * (new - old), atol=1e-6, err_msg=name)
        moved += not np.array_equal(old, new)
    assert moved > 2
    learner.predict("base", seen(batch)[:2], make_past(2, 1) if kind == "lstm" else None)
    assert_equal_states(learner.get_state(), after)
    assert learner.gradient(batch).metrics["fit_x"] > 1e-5


@pytest.mark.parametrize("kind", ["small", "lstm"])
def test_averages_that_are_always_equal_compute_the_same(kind):
    """Also while the moments of observations and returns change, and the value layer with them."""
    config = dataclasses.replace(CONFIG, normalize_observations="element", normalize_returns=True)
    learner = make_learner(config, tasks=(Averaged(average=1.0),), kind=kind)
    for seed in range(2):
        batch = batch_for(kind)
        batch["base"]["returns"] = 10 * np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
        metrics = learner.train(batch, 0.01)
        assert max(metrics["fit_x"], metrics["fit_head"]) < 1e-5


@pytest.mark.parametrize(
    ("rate", "head", "message"), [(2.0, True, "at most 1"), (0.5, False, "no head .* argument net")]
)
def test_averages_without_a_use_or_a_possible_rate_are_refused(rate, head, message):
    class Unused(Averaged):
        def head(self, spec):
            return AverageViews() if head else layers.Dense(2)

    with pytest.raises(ConfigError, match=f"^task 'fit'.*{message}"):
        make_learner(tasks=(Unused(average=rate),), new=True)
