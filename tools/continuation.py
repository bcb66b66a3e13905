"""Does it pay to train from the forward pass of acting? `python tools/continuation.py [--backend jax] [training flags]`

Multiverse's continuation: what the backward pass needs is kept from acting, so that training has no forward pass of its
own; its gradient is taken at the weights that acted (A3C's own). In turn are measured, for the base network alone:
  two forwards   predictions of --predict observations each, then the gradient of the batch that they make up
  continuation   the same predictions, keeping the activations; one backward pass for each, and the sum of the gradients
Medians over rounds of CPU milliseconds (of wall milliseconds with a GPU), and by how much the two gradients differ.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import measure
import numpy as np
from command_line import Parser

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.runtime.system import build_learner
from gunreal.train import prepare

Targets = dict[str, Any]


class TensorFlow:
    """Both ways; a kept tape holds the activations of a compiled forward pass and runs its compiled backward pass."""

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
        """A prediction, with what its backward pass will need."""
        with self._tf.GradientTape() as tape:
            outputs = self.predict(observations)
        return outputs, tape

    def _of_outputs(self, parts: Sequence[Any], targets: Targets) -> Any:
        with self._tf.GradientTape() as tape:
            tape.watch(parts)
            loss = self._loss(targets, [self._tf.concat(x, 0) for x in zip(*parts, strict=True)])
        return tape.gradient(loss, parts)

    def continued(self, kept: Sequence[Any], targets: Targets) -> list[Any]:
        """The gradient, from kept predictions."""
        cotangents = self._cotangents([outputs for outputs, _ in kept], targets)
        return self._sum(
            [tape.gradient(outputs, self._weights, c) for (outputs, tape), c in zip(kept, cotangents, strict=True)]
        )


class Jax:
    """Both ways; `jax.vjp`'s result is a tree of arrays that a compiled prediction can return."""

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
    """The two ways with the configuration's network and loss."""
    if spec.state:
        raise ConfigError("continuation is measured for networks without memory; use --network small or large")
    network = build_learner(config, spec, ()).network
    from gunreal.learning.network import actor_critic_loss

    def loss(targets: Targets, outputs: Any) -> Any:
        logits, value = outputs
        named = {"logits": logits[:, None], "value": value[:, None]}
        weights = {"entropy": config.entropy, "value_weight": config.value_weight, "log_epsilon": config.log_epsilon}
        return actor_critic_loss(targets, named, **weights)[0]

    return (Jax if config.backend == "jax" else TensorFlow)(network, loss)


def compare(config: Config, size: int, batch: int, rounds: int) -> dict[str, float]:
    """Milliseconds of "predict", "train", "keep" and "continued" for a batch, and "difference", relative to the largest
    gradient of a weight."""
    spec, _ = prepare(config)
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


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """The options and the configuration. Raises ConfigError."""
    parser = Parser("continuation.py", __doc__)
    parser.add_argument("--predict", type=int, default=16, metavar="N", help="observations of a prediction (16)")
    parser.add_argument("--train", type=int, default=320, metavar="N", help="observations of a batch (320)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of which medians are taken (15)")
    options, config, _ = parser.parse_with_training_flags(argv)
    if min(options.predict, options.rounds) < 1 or options.train < 1 or options.train % options.predict:
        raise ConfigError("--predict, --train and --rounds have to be at least 1, --train a multiple of --predict")
    return options, config


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 2 where the input was bad."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        found = compare(config, options.predict, options.train, options.rounds)
    except ConfigError as error:
        print(f"continuation.py: {error}", file=sys.stderr)
        return 2
    two, one = found["predict"] + found["train"], found["keep"] + found["continued"]
    print(
        f"{config.backend}, {config.precision}, predictions of {options.predict}, batch {options.train}: "
        f"two forwards {found['predict']:.1f} + {found['train']:.1f} = {two:.1f} ms, "
        f"continuation {found['keep']:.1f} + {found['continued']:.1f} = {one:.1f} ms; ratio {two / one:.2f}; "
        f"gradients differ by {found['difference']:.0e}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
