"""Moving averages of weights, for the tasks that ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras


class Average:
    """Moving averages of some weights, in Keras variables that are not trained. They start as copies.

    Attributes:
      variables: the averages by name.
    """

    def __init__(self, weights: Mapping[str, Any], rate: float):
        """`weights` are the variables by name. Each update moves the averages by `rate` of the way to them."""
        self._weights, self._rate = list(weights.values()), rate
        self.variables = {
            name: keras.Variable(keras.ops.copy(weight.value), dtype=weight.dtype, trainable=False, name=weight.name)
            for name, weight in weights.items()
        }

    def moved(self) -> list[tuple[Any, Any]]:
        """The averages with their values after an update to the present weights."""
        pairs = zip(self._weights, self.variables.values(), strict=True)
        return [(kept, kept.value + self._rate * (weight.value - kept.value)) for weight, kept in pairs]

    def replacing(self, others: Sequence[Any]) -> keras.StatelessScope:
        """A scope in which layers compute with the averages. `others` are variables that keep their values in it."""
        averages = zip(self._weights, self.variables.values(), strict=True)
        # A scope hides the values that a scope around it gives to variables.
        return keras.StatelessScope([(v, kept.value) for v, kept in averages] + [(v, v.value) for v in others])
