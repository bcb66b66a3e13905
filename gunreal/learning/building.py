"""Contexts in which layers are made: their precision, and the seeds of their initial weights."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

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
