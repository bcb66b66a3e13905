"""Mistakes in the methods of a task, each of which is one line that names the task and the place."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import ops

from gunreal.config.schema import ConfigError
from gunreal.experience.spec import Spec
from gunreal.learning import heads
from gunreal.learning.torso import Features

SPEC = Spec((3,), 1, "float32", 2, t_max=4)
FEATURES = Features(*(keras.KerasTensor((None, width)) for width in (6, 8)))


def task(**methods):
    return SimpleNamespace(name="mine", features="hidden", length=lambda t_max: t_max, prioritized=False, **methods)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda spec: 3, r"head\(\) returned 3; return a Keras layer or None$"),
        (lambda spec: keras.layers.Dense(spec.actions), r"head\(\) failed: AttributeError: .*\(.*test_heads.py:\d+\)$"),
        (lambda spec: keras.layers.Dense(-1), r"head\(\) failed: ValueError: .*\(.*test_heads.py:\d+\)$"),
    ],
)
def test_a_head_that_cannot_be_made(head, message):
    with pytest.raises(ConfigError, match=f"^task 'mine': {message}") as error:
        heads.build(task(head=head), SPEC, FEATURES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda outputs, batch: None, r"loss\(\) returns nothing; return a scalar, computed with keras.ops$"),
        (lambda outputs, batch: 0.5, r"loss\(\) returns a float; return a scalar, computed with keras.ops$"),
        (lambda outputs, batch: (outputs[0, 0], 0.5), r"loss\(\) returns a tuple; return a scalar, .*$"),
        (
            lambda outputs, batch: (outputs[0, 0], {"most": outputs[0]}),
            r"the metric 'most' of loss\(\) returns shape \(4,\); return a scalar$",
        ),
        (lambda outputs, batch: outputs, r"loss\(\) returns shape \(2, 4\); return a scalar$"),
        (lambda outputs, batch: batch["signs"], r"loss\(\) failed: KeyError: 'signs' \(.*test_heads.py:\d+\)$"),
    ],
)
def test_a_loss_that_is_no_scalar(loss, message):
    with pytest.raises(ConfigError, match=f"^task 'mine': {message}"):
        heads.loss(task(loss=loss), ops.ones((2, 4)), {"sign": np.ones(2)})


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (keras.layers.Dropout(0.5, name="n"), r"noise \(n\); leave it out"),
        (keras.layers.GaussianNoise(1.0, name="n"), r"noise \(n\); leave it out"),
        (keras.layers.BatchNormalization(), r"untrained state \(.*moving_mean.*\); use layers without state"),
    ],
)
def test_a_head_with_noise_or_state(layer, message):
    head = keras.Sequential([keras.layers.Dense(2), layer])
    with pytest.raises(ConfigError, match=f"^the head of task 'mine' has {message}"):
        heads.build(task(head=lambda spec: head), SPEC, FEATURES)


@pytest.mark.parametrize(
    ("bootstrap", "message"),
    [
        (ops.mean, r"bootstrap\(\) returns a single number; return one for each of its inputs$"),
        (lambda outputs: outputs["value"], r"bootstrap\(\) failed: IndexError: .*\(.*test_heads.py:\d+\)$"),
    ],
)
def test_a_bootstrap_that_is_not_one_for_each_state(bootstrap, message):
    with pytest.raises(ConfigError, match=f"^task 'mine': {message}"):
        heads.bootstrap(task(bootstrap=bootstrap), np.ones((2, 4), np.float32))
