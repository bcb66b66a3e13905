"""How layers are made: their precision, layout, and the seeds of their initial weights; and constants beside them.

Keras's global settings, which belong to the user, have no effect on any of it.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import keras

_lock = threading.Lock()
_inside = 0  # number of contexts that are open in all threads
_users: tuple[Any, ...] = ()  # what the user has set, while there are any


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Sets Keras's global settings to its own defaults, whatever `keras.json` and the user's program have set.

    Layers and optimizers are made, and functions of `keras.ops` are traced, in this context. Several threads may be in
    it at the same time.
    """
    global _inside, _users
    policy = keras.config.dtype_policy()  # of this thread; the other settings are of the process
    with _lock:
        if not _inside:
            _users = keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()
            _set("float32", 1e-7, "channels_last")
        _inside += 1
    keras.config.set_dtype_policy("float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        with _lock:
            _inside -= 1
            if not _inside:
                _set(*_users)


def _set(floatx: str, epsilon: float, data_format: str) -> None:
    keras.config.set_floatx(floatx)
    keras.config.set_epsilon(epsilon)
    keras.config.set_image_data_format(data_format)


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
