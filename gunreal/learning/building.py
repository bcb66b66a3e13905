"""How layers are made: their precision, layout, and the seeds of their initial weights; and constants beside them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import keras


@contextlib.contextmanager
def computing(precision: str) -> Iterator[None]:
    """Sets the precision of all layers made in this context, including those of plug-ins."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python's global generator, from which Keras's default initializers (used by plug-ins) draw their seeds."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def laid_out(data_format: str) -> Iterator[None]:
    """Sets the default layout of all layers made in this context, "channels_first" or "channels_last"."""
    before = keras.config.image_data_format()
    keras.config.set_image_data_format(data_format)
    try:
        yield
    finally:
        keras.config.set_image_data_format(before)


def dense(name: str, units: int, gain: float, seed: int, activation: str | None = None) -> Any:
    """A dense layer with orthogonal initial weights."""
    initializer = keras.initializers.Orthogonal(gain, seed)
    return keras.layers.Dense(units, activation, kernel_initializer=initializer, name=name)


def constants(x: Any, *arrays: Any) -> list[Any]:
    """Arrays to calculate with `x`. They are NumPy arrays if `x` is symbolic.

    Keras saves those with a model, and an export makes constants of them.
    """
    symbolic = keras.utils.is_keras_tensor(x)
    return [keras.ops.convert_to_numpy(array) if symbolic else array for array in arrays]
