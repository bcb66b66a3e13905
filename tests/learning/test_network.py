"""The network: shapes, layouts, initial weights, heads, and the passes that serve all tasks."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops
from learners import SPEC as IMAGES
from learners import Fit, make_past
from learners import make_batch as make_parts

from gunreal.experience.spec import Spec
from gunreal.learning import losses
from gunreal.learning.network import Features, Network
from gunreal.learning.registry import named
from gunreal.learning.task import AuxiliaryTask
from gunreal.objectives.a3c import A3c

ATARI = Spec((1, 84, 84), 4, "uint8", 6)
OBJECTIVE = A3c("epsilon", 0.1)
WEIGHTS = {"entropy": 0.01, "value_weight": 0.5}


@dataclasses.dataclass(frozen=True)
class Value(AuxiliaryTask):
    """Uses the actor-critic's value, as value replay does."""

    name: ClassVar[str] = "again"

    def loss(self, outputs, batch):
        return losses.value_loss(outputs["value"], batch["returns"], batch["mask"])

    def bootstrap(self, outputs):
        return outputs["value"][:, 0]


TASKS = (Fit(), Value())


def build(spec=IMAGES, tasks=(), kind="small", **options):
    return Network(spec, tasks, named(kind, hidden=16), **{"seed": 3, **options})


def observations(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *spec.observation), dtype=np.uint8)


def run(network, method, *arguments, **options):
    """Calls a method as the backends do, compiled: TensorFlow's CPU kernels know NCHW convolutions only so."""
    function = functools.partial(getattr(network, method), **options)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        function = tf.function(function, autograph=False)
    return function(*arguments)


def loss(network, batch):
    total, metrics, *_ = run(network, "loss", batch, OBJECTIVE, **WEIGHTS)
    return float(total), {name: float(value) for name, value in metrics.items()}


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def arrays(network):
    return {name: v.numpy() for name, v in zip(network.names, network.trainable_variables, strict=True)}


def variable_shapes(network):
    return {name: array.shape for name, array in arrays(network).items()}


def make_batch(network, count, seed=0):
    batch = make_parts(count, seed)
    base = batch["base"]
    batch["again"] = {**base, "observations": base["observations"][::-1], "returns": -base["returns"]}
    return {name: batch[name] for name in network.lengths}


def slow_convolution(x, kernel, bias, stride):
    """Unpadded, `x` `[H, W, C]`, `kernel` `[kh, kw, C, filters]`, then ReLU."""
    size = kernel.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in x.shape[:2])
    y = np.zeros((rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            window = x[i * stride : i * stride + size, j * stride : j * stride + size]
            y[i, j] = np.tensordot(window, kernel, 3) + bias
    return np.maximum(y, 0)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_torso_against_slow_numpy(data_format):
    network = build(data_format=data_format)
    image = observations(IMAGES, 1)
    weights = arrays(network)
    x = image[0].transpose(1, 2, 0) / 255
    for name, stride in (("conv1", 4), ("conv2", 2)):
        x = slow_convolution(x, weights[f"torso/{name}/kernel"], weights[f"torso/{name}/bias"], stride)
    hidden = np.maximum(x.reshape(-1) @ weights["torso/fc3/kernel"] + weights["torso/fc3/bias"], 0)
    features = run(network.torso, "features", image)
    np.testing.assert_allclose(numpy(features.conv)[0], x.reshape(-1), atol=1e-5)
    np.testing.assert_allclose(numpy(features.hidden)[0], hidden, atol=1e-5)


def test_the_papers_sizes():
    shapes = variable_shapes(Network(ATARI, (), named("small")))
    assert shapes["torso/conv1/kernel"] == (8, 8, 4, 16)
    assert shapes["torso/conv2/kernel"] == (4, 4, 16, 32)
    assert shapes["torso/fc3/kernel"] == (2592, 256)
    assert shapes["policy/kernel"] == (256, 6) and shapes["value/kernel"] == (256, 1)


@pytest.mark.parametrize(("stride", "flat"), [(4, 3 * 3), (3, 5 * 5), (2, 8 * 8), (1, 17 * 17)])
def test_the_large_network(stride, flat):
    shapes = variable_shapes(Network(ATARI, (), named("large", first_stride=stride, hidden=8)))
    assert shapes["torso/conv1/kernel"] == (8, 8, 4, 32)
    assert shapes["torso/conv3/kernel"] == (4, 4, 32, 64)
    assert shapes["torso/fc4/kernel"] == (flat * 64, 8)


def test_the_impala_network():
    torso = Network(ATARI, (), named("impala", hidden=8)).torso
    kinds = [type(layer).__name__ for layer in torso.model.layers]
    assert (kinds.count("Conv2D"), kinds.count("Add"), torso.widths.conv) == (15, 6, 11 * 11 * 32)


def test_the_seed_alone_gives_torso_policy_and_value():
    """Tasks and a cell change nothing of them. Another seed changes every kernel, those of heads too."""
    alone, together, other = arrays(build()), arrays(build(tasks=TASKS)), arrays(build(tasks=TASKS, seed=4))
    assert list(together)[: len(alone)] == list(alone)
    recurrent = arrays(build(IMAGES._replace(state=32), kind="lstm"))
    for name, array in alone.items():
        np.testing.assert_array_equal(array, together[name])
        np.testing.assert_array_equal(array, recurrent[name])
    kernels = [name for name in together if name.endswith("kernel")]  # biases start as zeros
    assert {name.split("/")[0] for name in kernels} == {"torso", "policy", "value", "fit"}
    assert not [name for name in kernels if np.array_equal(together[name], other[name])]


def test_a_head_starts_the_same_whatever_was_built_before():
    one = build(tasks=(Fit(),))
    keras.layers.Dense(3).build((None, 4))
    two = build(tasks=(Value(), Fit()))
    assert one.names == two.names and len(set(one.names)) == len(one.names)
    for name, array in arrays(one).items():
        np.testing.assert_array_equal(array, arrays(two)[name])


def test_building_leaves_the_global_generator_alone():
    state = random.getstate()
    build(tasks=TASKS)
    assert random.getstate() == state


def test_initial_policy_is_almost_uniform():
    logits, _ = run(build(), "predict", "base", observations(IMAGES, 32))
    assert np.abs(numpy(ops.softmax(logits)) - 1 / 3).max() < 0.02


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_the_passes_of_an_update_are_those_of_each_task_alone(data_format, side_by_side):
    network = build(tasks=TASKS, data_format=data_format, side_by_side=side_by_side)
    batch = make_batch(network, count=3)
    total, metrics = loss(network, batch)
    base, fit, again = (np.concatenate(batch[name]["observations"]) for name in network.lengths)
    assert [len(x) for x in (base, fit, again)] == [12, 9, 12]

    def sequences(x, length):
        return Features(*(ops.reshape(f, (3, length, -1)) for f in run(network.torso, "features", x)))

    outputs = network.policy_value(sequences(base, 4).hidden)
    mask, returns = batch["base"]["mask"], batch["base"]["returns"]
    advantage = returns - numpy(outputs["value"])
    policy = losses.policy_gradient_loss(outputs["logits"], batch["base"]["action"], advantage, mask, 0.1)
    entropy = losses.entropy(outputs["logits"], mask, 0.1)
    a3c = float(policy) + 0.5 * np.sum(0.5 * advantage**2 * mask) / mask.sum() - 0.01 * float(entropy)
    loss_fit = float(Fit().loss(network.task_outputs(Fit(), sequences(fit, 3)), batch["fit"]))
    loss_again = float(Value().loss(network.policy_value(sequences(again, 4).hidden), batch["again"]))
    expected = {
        "loss_base": a3c,
        "loss_policy": float(policy),
        "loss_value": np.sum(0.5 * advantage**2 * mask) / mask.sum(),
        "entropy": float(entropy),
        "value_mean": np.sum(numpy(outputs["value"]) * mask) / mask.sum(),
        "return_mean": returns[mask > 0].mean(),
        "return_deviation": returns[mask > 0].std(),
        "loss_fit": loss_fit,
        "loss_again": loss_again,
        "loss_total": a3c + 0.25 * loss_fit + loss_again,
    }
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5), name
    assert total == metrics["loss_total"]


def test_a_task_sees_the_recurrence_as_the_actor_critic_does():
    network = build(IMAGES._replace(state=32), (Value(),), kind="lstm")
    x, past = observations(IMAGES, 5), make_past(5, 1)
    _, value, _ = network.predict("base", x, past)
    np.testing.assert_allclose(numpy(network.predict("again", x, past)[0]), numpy(value), atol=1e-6)
    parts = [{**make_batch(network, 3, seed)["base"], "past": make_past(3, 4, seed)} for seed in range(2)]
    one, two = (loss(network, {"base": a, "again": b})[1] for a, b in (parts, reversed(parts)))
    for metrics, swapped in ((one, two), (two, one)):  # each part has its own past
        assert metrics["loss_again"] == pytest.approx(swapped["loss_value"], rel=1e-5)
    assert one["loss_again"] != pytest.approx(one["loss_value"], rel=1e-2)


@pytest.mark.parametrize("kind", ["small", "mlp"])
def test_bfloat16_computes_nearly_the_same(kind):
    """Weights, outputs, losses and gradients are float32; eight bits of precision in between."""
    exact, coarse = (build(tasks=TASKS, kind=kind, precision=p) for p in ("float32", "bfloat16"))
    assert keras.config.dtype_policy().name == "float32"  # what is built later is not changed
    assert {keras.backend.standardize_dtype(v.dtype) for v in coarse.trainable_variables} == {"float32"}
    x = observations(IMAGES, 5)
    for one, two in zip(run(exact, "predict", "base", x), run(coarse, "predict", "base", x), strict=True):
        assert keras.backend.standardize_dtype(two.dtype) == "float32"
        np.testing.assert_allclose(numpy(one), numpy(two), atol=0.02)
        assert (numpy(one) != numpy(two)).any()
    batch = make_batch(exact, count=3)
    for name, value in loss(exact, batch)[1].items():
        assert loss(coarse, batch)[1][name] == pytest.approx(value, rel=0.05, abs=0.02), name
