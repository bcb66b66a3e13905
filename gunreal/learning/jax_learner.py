"""The learner on JAX: compiled prediction and training, padding, and their state."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import numpy as jnp

from gunreal.experience.replay import Past
from gunreal.learning.building import isolated
from gunreal.learning.gates import gated
from gunreal.learning.learner import Learner, Scalars
from gunreal.learning.optimizer import clip_factor, update
from gunreal.learning.padding import pad, pad_past, padded_size

if TYPE_CHECKING:
    from gunreal.config.schema import Config
    from gunreal.learning.network import Network

jax.tree_util.register_dataclass(Scalars, data_fields=["values", "priorities"], meta_fields=["names"])


class JaxLearner(Learner):
    """A learner with `jax.jit` over the stateless forms of network and optimizer.

    Observations of predictions are padded to powers of two, because every new shape costs a compilation. Batches of
    updates have one or two sizes.
    """

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        # One tuple, replaced at once after an update, so that a prediction sees a single version. It is not donated,
        # because it may be in use.
        self._weights = tuple(variable.value for variable in (*self._variables, *self._untrained))
        self._state = tuple(variable.value for variable in self._slots.values())
        self._copied: tuple[Any, ...] | None = None
        self._predict = {head: jax.jit(functools.partial(self.functional_predict, head=head)) for head in self._heads}
        self._compiled = jax.jit(isolated()(self._loss_gradient))
        self._optimize = jax.jit(isolated()(self._optimizer_step))
        methods = ("features", "recall", "look")
        self._methods = {name: jax.jit(functools.partial(self.functional, name)) for name in methods}

    def _scope(self, weights: tuple[Any, ...]) -> Any:
        import keras

        variables = (*self._variables, *self._untrained)
        return keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True)))

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        count = len(observations)
        size = padded_size(count, self._config.max_batch)
        weights = self._weights if self._copied is None else self._copied
        outputs = self._predict[head](weights, pad(observations, size), past and pad_past(past, size))
        return tuple(output[:count] for output in jax.device_get(outputs))

    def features(self, observations: np.ndarray) -> np.ndarray:
        """Calls the compiled `Network.features`."""
        size = padded_size(len(observations), self._config.max_batch)
        return super().features(pad(observations, size))[: len(observations)]

    def _copy(self) -> None:
        self._copied = self._weights

    def _called(self, method: str, batch: Any) -> Any:
        return jax.device_get(self._methods[method](self._weights, batch))

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], Scalars, dict[str, Any]]:
        return self._compiled(self._weights, batch)

    def _loss_gradient(
        self, weights: tuple[Any, ...], batch: Mapping[str, Any]
    ) -> tuple[list[Any], Scalars, dict[str, Any]]:
        trained = len(self._variables)

        def loss(trainable: tuple[Any, ...]) -> tuple[Any, Any]:
            with self._scope((*trainable, *weights[trained:])):
                return self._loss(batch)

        if self._is_gated(batch):
            total, (metrics, states, terms) = loss(weights[:trained])

            def gradient(names: Sequence[str]) -> Sequence[Any]:  # XLA merges the equal forward passes
                def some(trainable: tuple[Any, ...]) -> Any:
                    return sum(loss(trainable)[1][2][name] for name in names)

                return jax.grad(some)(weights[:trained])

            gradients, of_gates = gated(self.network, terms, gradient)
            metrics |= of_gates
        else:
            (total, (metrics, states, _)), gradients = jax.value_and_grad(loss, has_aux=True)(weights[:trained])
        with self._scope(weights):
            moments = {**self.network.moments(batch, metrics), **states}
        return *self._judge(total, metrics, list(gradients), moments), moments

    def _apply(self, gradients: list[Any], moments: dict[str, Any], scale: float, learning_rate: float) -> None:
        how = np.float32(scale), np.float32(learning_rate)
        self._weights, self._state = self._optimize(self._weights, self._state, gradients, moments, *how)

    def _optimizer_step(
        self,
        weights: tuple[Any, ...],
        state: tuple[Any, ...],
        gradients: list[Any],
        moments: dict[str, Any],
        scale: Any,
        learning_rate: Any,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        from keras import ops

        trained, scaled = len(self._variables), self.steps.scaled(gradients, scale)
        stepped, new_state = update(self._config, weights[:trained], scaled, state, learning_rate, ops)
        new_weights = (*self.steps.taken(weights[:trained], stepped), *weights[trained:])
        with self._scope(new_weights):
            absorbed = {id(variable): value for variable, value in self.network.absorbed(moments)}
        names = (*self._variables, *self._untrained)
        return tuple(absorbed.get(id(v), x) for v, x in zip(names, new_weights, strict=True)), tuple(new_state)

    @property
    def arrays(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The weights with the moments, and the optimizer's state, for `functional_predict` and `functional_update`."""
        return self._weights, self._state

    def replace(self, arrays: tuple[tuple[Any, ...], tuple[Any, ...]], version: int | None = None) -> None:
        """Replaces `arrays`, and the number of updates if it is given. The arrays are not copied."""
        with self._lock:
            self._weights, self._state = arrays
            self.version = self.version if version is None else version

    def functional_predict(
        self, weights: tuple[Any, ...], observations: Any, past: Past | None, head: str = "base"
    ) -> tuple[Any, ...]:
        """`Network.predict` as a function of the weights, to be compiled as a part of a program."""
        with self._scope(weights):
            return self.network.predict(head, observations, past)

    def functional(self, method: str, weights: tuple[Any, ...], batch: Any) -> Any:
        """A method of the network as a function of the weights. `Network.recall` is compiled as a part of a program."""
        with self._scope(weights):
            return getattr(self.network, method)(batch)

    def functional_update(
        self,
        arrays: tuple[tuple[Any, ...], tuple[Any, ...]],
        batch: Mapping[str, Any],
        rates: Any,
        version: Any,
    ) -> tuple[tuple[tuple[Any, ...], tuple[Any, ...]], Scalars]:
        """`train` as a function of `arrays`, to be compiled as a part of a program.

        Returns:
          The new arrays, and the metrics. An update that is not finite leaves the arrays unchanged.
        """
        learning_rate, entropy, progress = rates
        now = {"entropy": entropy, "progress": progress, "version": version}
        batch = {**batch, "now": {name: jnp.reshape(x, 1) for name, x in now.items()}}
        gradients, metrics, moments = self._loss_gradient(arrays[0], batch)
        scale = clip_factor(metrics["grad_norm"], self._config.max_grad_norm, jnp)
        updated = self._optimizer_step(*arrays, gradients, moments, scale, learning_rate)
        kept = jax.tree.map(lambda old, new: jnp.where(metrics["skipped"] > 0, old, new), arrays, updated)
        return kept, metrics

    def _read(self) -> list[Any]:
        return [*self._weights, *self._state]

    def _write(self, arrays: Sequence[np.ndarray]) -> None:
        put = [jnp.array(array) for array in arrays]
        kept = len(self._weights)
        self._weights, self._state = tuple(put[:kept]), tuple(put[kept:]) or self._state
