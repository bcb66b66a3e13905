"""The optimizers as functions of arrays, of Keras in a learner and of NumPy in a cluster's reducer.

A reducer loads no framework: Keras would take ten times as long to start, and seven times as much memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gunreal.config.schema import Config


def initial_state(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The optimizer's state before the first update.

    Returns:
      "updates", their number, an integer scalar. Then averages of each weight's gradients, float32: with Adam
      "mean/<weight>" of all weights and "square/<weight>" of all weights, with RMSProp the latter.
    """
    first = {"mean": 0.0, "square": 0.0} if config.optimizer == "adam" else {"square": config.rms_initial}
    averages = {
        f"{kind}/{name}": np.full(shape, value, np.float32)
        for kind, value in first.items()
        for name, shape in shapes.items()
    }
    return {"updates": np.array(0), **averages}


def clip_factor(norm: Any, most: float, ops: Any) -> Any:
    """The factor that limits the global norm of gradients to `most`. 0 means no limit."""
    return most / ops.maximum(norm, most) if most > 0 else 1.0


def update(
    config: Config, weights: Sequence[Any], gradients: Sequence[Any], state: Sequence[Any], rate: Any, ops: Any
) -> tuple[list[Any], list[Any]]:
    """Takes one step with the configured optimizer.

    Args:
      weights: the weights, or slices of them, float32 arrays.
      state: the values of `initial_state`, or the same slices of them.
      rate: learning rate, float32.
      ops: the module to compute with, `keras.ops` or NumPy.

    Returns:
      The new weights and the new state.
    """
    updates, *averages = state[0] + 1, *state[1:]
    kinds = [averages[first : first + len(weights)] for first in range(0, len(averages), len(weights))]
    rule: Callable[..., tuple[Any, ...]] = _rmsprop
    if config.optimizer == "adam":
        rule, number = _adam, ops.array(updates, "float32")
        rate = rate * ops.sqrt(1 - ops.power(config.beta2, number)) / (1 - ops.power(config.beta1, number))
    stepped = [rule(config, rate, ops, *arrays) for arrays in zip(weights, gradients, *kinds, strict=True)]
    new, *kinds = map(list, zip(*stepped, strict=True))
    return new, [updates, *itertools.chain(*kinds)]


def _adam(
    config: Config, rate: Any, ops: Any, weight: Any, gradient: Any, mean: Any, square: Any
) -> tuple[Any, Any, Any]:
    """Adam (Kingma and Ba 2015, section 2). `rate` has the corrections of the averages."""
    mean = mean + (gradient - mean) * (1 - config.beta1)
    square = square + (ops.square(gradient) - square) * (1 - config.beta2)
    return weight - mean * rate / (ops.sqrt(square) + config.epsilon), mean, square


def _rmsprop(config: Config, rate: Any, ops: Any, weight: Any, gradient: Any, square: Any) -> tuple[Any, Any]:
    """RMSProp with epsilon inside the square root, as in GA3C's eq. 3."""
    square = config.rms_decay * square + (1 - config.rms_decay) * ops.square(gradient)
    return weight - rate * gradient / ops.sqrt(square + config.epsilon), square
