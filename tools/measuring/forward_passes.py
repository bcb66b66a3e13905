"""Two ways to compute a gradient: with a second forward pass for training, or with the activations kept from acting."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.objectives.a3c import A3c
from gunreal.runtime.system import build_learner, on_this_machine
from gunreal.train import prepare
from measuring import measure

Targets = dict[str, Any]


class TensorFlow:
    """Both ways in TensorFlow. A gradient tape keeps the activations and runs the compiled backward pass."""

    def __init__(self, network: Any, loss: Callable[[Targets, Any], Any]):
        import tensorflow as tf

        self._tf, self._network, self._loss = tf, network, loss
        self._weights = [variable.value for variable in network.trainable_variables]
        compiled = functools.partial(tf.function, autograph=False, reduce_retracing=True)
        self.predict = compiled(functools.partial(network.predict, "base"))
        self.gradient = compiled(self._gradient)
        self._cotangents = compiled(self._of_outputs)
        self._sum = compiled(lambda gradients: [tf.add_n(of) for of in zip(*gradients, strict=True)])

    def _gradient(self, observations: Any, targets: Targets) -> list[Any]:
        with self._tf.GradientTape() as tape:
            loss = self._loss(targets, self._network.predict("base", observations))
        return tape.gradient(loss, self._weights)

    def keep(self, observations: np.ndarray) -> Any:
        """Predicts, and returns the outputs together with the tape for their backward pass."""
        with self._tf.GradientTape() as tape:
            outputs = self.predict(observations)
        return outputs, tape

    def _of_outputs(self, parts: Sequence[Any], targets: Targets) -> Any:
        with self._tf.GradientTape() as tape:
            tape.watch(parts)
            loss = self._loss(targets, [self._tf.concat(x, 0) for x in zip(*parts, strict=True)])
        return tape.gradient(loss, parts)

    def continued(self, kept: Sequence[Any], targets: Targets) -> list[Any]:
        """Computes the gradient from kept predictions."""
        cotangents = self._cotangents([outputs for outputs, _ in kept], targets)
        return self._sum(
            [tape.gradient(outputs, self._weights, c) for (outputs, tape), c in zip(kept, cotangents, strict=True)]
        )


class Jax:
    """Both ways in JAX. The result of `jax.vjp` is a tree of arrays, so a compiled prediction can return it."""

    def __init__(self, network: Any, loss: Callable[[Targets, Any], Any]):
        import jax
        import keras

        weights = tuple(variable.value for variable in network.trainable_variables)

        def outputs(weights: Any, observations: Any) -> Any:
            with keras.StatelessScope(list(zip(network.trainable_variables, weights, strict=True))):
                return network.predict("base", observations)

        def gradient(weights: Any, observations: Any, targets: Targets) -> Any:
            return jax.grad(lambda w: loss(targets, outputs(w, observations)))(weights)

        def keep(weights: Any, observations: Any) -> Any:
            return jax.vjp(lambda w: outputs(w, observations), weights)

        def continued(kept: Sequence[Any], targets: Targets) -> Any:
            def of_outputs(parts: Any) -> Any:
                return loss(targets, [jax.numpy.concatenate(x) for x in zip(*parts, strict=True)])

            cotangents = jax.grad(of_outputs)([part for part, _ in kept])
            gradients = [vjp(c)[0] for (_, vjp), c in zip(kept, cotangents, strict=True)]
            return jax.tree.map(lambda *x: sum(x), *gradients)

        def call(function: Any, *inputs: Any) -> Callable[..., Any]:
            compiled = jax.jit(function)
            return lambda *rest: jax.block_until_ready(compiled(*inputs, *rest))

        self.predict, self.gradient = call(outputs, weights), call(gradient, weights)
        self.keep, self.continued = call(keep, weights), call(continued)


def both_ways(config: Config, spec: Spec) -> TensorFlow | Jax:
    """Returns the two ways for the network and the loss of a configuration."""
    if spec.state:
        raise ConfigError("recurrent networks can't be measured here; use --network small or large")
    network = build_learner(config, spec, ()).network

    def loss(targets: Targets, outputs: Any) -> Any:
        logits, value = outputs
        named = {"logits": logits[:, None], "value": value[:, None], "scale": 1.0}
        weights = {"entropy": config.entropy, "value_weight": config.value_weight}
        return A3c("epsilon").loss(named, {**targets, **weights})[0]  # it needs nothing but returns

    return (Jax if config.backend == "jax" else TensorFlow)(network, loss)


def compare(config: Config, size: int, batch: int, rounds: int) -> dict[str, float]:
    """Compares both ways on one batch.

    Returns:
      Median milliseconds of "predict", "train", "keep" and "continued", and "difference", the largest difference
      between the gradients of a weight, relative to its largest gradient.
    """
    spec, _, _, config = prepare(config)
    config = on_this_machine(config)
    ways = both_ways(config, spec)
    rng = np.random.default_rng(0)
    observations = rng.integers(0, 256, (batch, *spec.observation)).astype(spec.dtype)
    parts = np.split(observations, batch // size)
    targets = {"action": rng.integers(0, spec.num_actions, (batch, 1)).astype(np.int32)}
    targets |= {"returns": rng.normal(size=(batch, 1)).astype(np.float32), "mask": np.ones((batch, 1), np.float32)}
    clock = time.perf_counter if measure.has_gpu() else time.process_time
    spent: dict[str, list[float]] = {name: [] for name in ("predict", "train", "keep", "continued")}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        start = clock()
        result = action()
        spent[name].append(1e3 * (clock() - start))
        return result

    for _ in range(2 + rounds):  # two to compile and to warm up
        timed("predict", lambda: [ways.predict(part) for part in parts])
        one = timed("train", lambda: ways.gradient(observations, targets))
        kept = timed("keep", lambda: [ways.keep(part) for part in parts])
        other = timed("continued", lambda kept=kept: ways.continued(kept, targets))
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, other, strict=True)]
    difference = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    return {name: median(of[2:]) for name, of in spent.items()} | {"difference": difference}
