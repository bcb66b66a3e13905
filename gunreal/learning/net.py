"""What the head of a task may ask of the network: the argument `net` of its `call`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops


class AverageNet:
    """The moving averages of the torso and of the head of one task. No gradient flows through what they compute."""

    def __init__(self, scope: Callable[[], Any], features: Callable[[Any], Any], head: Callable[[Any], Any]):
        """`scope` makes a context in which `features` and `head` compute with the averages."""
        self._scope, self._features, self._head = scope, features, head

    def features(self, observations: Any) -> Any:
        """`Net.features` of the averages. Moments of observations are the present ones."""
        return self._computed(self._features, observations)

    def head(self, x: Any) -> Any:
        """What the head returns for the features `x`, without a batch and without a `Net`."""
        return self._computed(self._head, x)

    def _computed(self, function: Callable[[Any], Any], x: Any) -> Any:
        with self._scope():
            return keras.tree.map_structure(ops.stop_gradient, function(x))


class Net:
    """The network as the head of one task sees it during an update, and for a bonus.

    Attributes:
      observations: what the features were computed from, `[B, T, *spec.observation]` of dtype `spec.dtype`,
        or float32 with `--transfer float32`.
      features: function that computes what the head receives, from other observations of this shape. Their units are
        those of `observations`, and their dtype may be another one. A recurrent network starts from the same past. Not
        for a bonus of two observations with a recurrent network.
      policy_value: function that computes the policy and the value from "hidden" features, see `Network.policy_value`.
      average: the moving averages, or None for a task without any.
      state: the arrays of the task that gradients do not train, as in `batch["state"]`.
    """

    def __init__(
        self,
        observations: Any,
        features: Callable[[Any], Any],
        policy_value: Callable[[Any], dict[str, Any]],
        average: AverageNet | None,
        state: Mapping[str, Any],
        seed: str,
        version: Any,
    ):
        """`seed` and `version`, the number of updates, determine the `draws`."""
        self.observations, self.features, self.policy_value = observations, features, policy_value
        self.average, self.state = average, state
        self._seed, self._version, self._calls = seed, version, 0

    def draws(self, *shape: int) -> Any:
        """Uniform random numbers in [0, 1), float32 `[B, *shape]`.

        They depend on the run's seed, the task, the update and the number of calls before this one in the update.
        """
        seed = _Seed(zlib.crc32(f"{self._seed}/{self._calls}".encode()), self._version)
        self._calls += 1
        return keras.random.uniform((ops.shape(self.observations)[0], *shape), dtype="float32", seed=seed)


class _Seed(keras.random.SeedGenerator):
    """A seed that may be computed, and that does not change when it is used. Keras's functions take no other kind."""

    def __init__(self, run: int, version: Any):
        self._words = ops.stack([ops.convert_to_tensor(run, "uint32"), ops.cast(version, "uint32")])

    def next(self, ordered: bool = True) -> Any:
        return self._words
