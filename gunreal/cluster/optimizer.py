"""Keras's optimizers on slices of the flat weights, in NumPy: a reducer loads no framework."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gunreal.config.schema import Config


class SliceOptimizer:
    """The configured optimizer for a slice of the weights. It computes what `learning.optimizer.make_optimizer` would.

    Args:
      config: configuration of the run.
      slots: the averages, float32 `[n]` each: RMSProp's squares, or Adam's means and squares.
      updates: number of updates so far.
    """

    def __init__(self, config: Config, slots: Sequence[np.ndarray], updates: int):
        self._config = config
        self.slots = [np.array(slot, np.float32) for slot in slots]
        self.updates = updates

    def step(self, weights: np.ndarray, gradient: np.ndarray, rate: float) -> None:
        """Updates `weights` `[n]` in place. `gradient` `[n]` is overwritten."""
        self.updates += 1
        if self._config.optimizer == "rmsprop":
            self._rmsprop(weights, gradient, np.float32(rate))
        else:
            self._adam(weights, gradient, rate)

    def _rmsprop(self, weights: np.ndarray, gradient: np.ndarray, rate: np.float32) -> None:
        (squares,) = self.slots
        _decay(squares, np.square(gradient), self._config.rms_decay)
        gradient /= np.sqrt(squares + np.float32(self._config.epsilon))
        gradient *= rate
        weights -= gradient

    def _adam(self, weights: np.ndarray, gradient: np.ndarray, rate: float) -> None:
        means, squares = self.slots
        beta1, beta2 = self._config.beta1, self._config.beta2
        _decay(means, gradient, beta1)
        _decay(squares, np.square(gradient), beta2)
        rate *= math.sqrt(1 - beta2**self.updates) / (1 - beta1**self.updates)
        np.sqrt(squares, out=gradient)
        gradient += np.float32(self._config.epsilon)
        np.divide(means, gradient, out=gradient)
        gradient *= np.float32(rate)
        weights -= gradient


def _decay(average: np.ndarray, value: np.ndarray, decay: float) -> None:
    average *= np.float32(decay)
    average += np.float32(1 - decay) * value
