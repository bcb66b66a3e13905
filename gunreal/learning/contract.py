"""The contract of networks as a test: `gunreal.testing.check_network`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gunreal.config.plugins import expect, expect_plugin
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.architecture import Architecture

FRAMES = Spec((1, 84, 84), 4, "uint8", num_actions=3, t_max=4)
_ROLLOUTS = 4
_VECTORS = 3  # numbers beside an image, for a network that uses them itself


def check_network(network: Architecture | type[Architecture], spec: Spec = FRAMES, **options: Any) -> None:
    """Checks on random observations that a network follows every rule of `gunreal.learning.architecture`.

    The check takes a few seconds. It builds the network with Keras's current backend and does one update.

    Args:
      network: the class of the network, or an instance.
      spec: interface of the environment. The default is four gray frames of 84x84. Its `state` is set.
      **options: options of the network, if `network` is a class.

    Raises:
      AssertionError: the network breaks a rule. The message describes the first broken rule in one line.
      ValueError: `network.check` rejects `spec`.
    """
    network = expect_plugin(network, Architecture, options)
    images = spec.is_image or not network.takes_images
    expect(images, f"takes_images is True, but the spec has vectors of {spec.frame[0]}: set it to False or use images")
    network.check(spec)
    state = network.state()
    expect(isinstance(state, int) and state >= 0, f"state() is {state!r}: return the number of floats in the state")
    devices.select_any()
    spec = spec._replace(state=state)
    one = _built(network, spec)
    _check_weights(one, _built(network, spec), _built(network, spec, seed=2))
    if network.takes_images:
        _check_layouts(one, _built(network, spec, data_format="channels_first"))
    _check_learning(one, spec)
    if network.takes_vector() and not spec.vectors:
        check_network(network, spec._replace(vectors=_VECTORS))


def _built(network: Architecture, spec: Spec, **options: Any) -> Any:
    from gunreal.learning.network import Network

    try:
        return Network(spec, (), network, **{"seed": 1, **options})
    except ValueError as error:
        layout = "with the layout nchw: " if "data_format" in options else ""
        raise AssertionError(f"{layout}{error}") from error


def _weights(network: Any) -> dict[str, np.ndarray]:
    from keras import ops

    arrays = map(ops.convert_to_numpy, network.trainable_variables)
    return {name: np.array(array) for name, array in zip(network.names, arrays, strict=True)}


def _check_weights(one: Any, same: Any, other: Any) -> None:
    """The names and the initial weights depend on the seed alone, so that a run repeats and a checkpoint fits."""
    first, again, seeded = _weights(one), _weights(same), _weights(other)
    expect(len(first) == len(one.names), f"two weights have the same name ({', '.join(one.names)}): name the layers")
    expect(first.keys() == again.keys(), "the names of the weights change from one network to the next")
    for name, array in first.items():
        expect(np.array_equal(array, again[name]), f"two networks with the same seed differ in {name}")
    differ = any(not np.array_equal(array, seeded[name]) for name, array in first.items() if name.startswith("torso"))
    expect(differ, "networks with different seeds are equal: use the seed, or initializers without one")


def _check_layouts(one: Any, other: Any) -> None:
    shapes = ({name: array.shape for name, array in _weights(network).items()} for network in (one, other))
    first, second = shapes
    wrong = next((name for name in first if first[name] != second.get(name)), None)
    expect(
        wrong is None,
        f"{wrong} has another shape with the layout nchw: do not fix data_format, and do not flatten in body()",
    )


def _check_learning(network: Any, spec: Spec) -> None:
    """Predictions are finite and independent of each other, and an update reaches all weights."""
    from gunreal.learning.backend import make_learner

    rng = np.random.default_rng(0)
    count = _ROLLOUTS * spec.t_max
    images = rng.integers(0, 256, (count, *spec.observation))
    observations = (
        images.astype(np.uint8) if spec.dtype == "uint8" else rng.normal(size=images.shape).astype(np.float32)
    )
    action = rng.integers(0, spec.num_actions, (_ROLLOUTS, spec.t_max)).astype(np.int32)
    learner = make_learner(network, resolved(Config(objective="a3c", objective_args={"correction": "epsilon"})))
    past = _past(spec, rng, count, 1)
    logits, value, *states = learner.predict("base", observations, past)
    made = f"{len(logits)} outputs of {count} observations"
    expect(len(logits) == count, f"the network makes {made}: keep the first axis in body() and top()")
    for output in (logits, value, *states):
        expect(np.isfinite(output).all(), "an output of the network is not finite")
    first = None if past is None else Past(*(array[:2] for array in past))
    few, _, *_ = learner.predict("base", observations[:2], first)
    expect(np.allclose(few, logits[:2], atol=1e-4), "the outputs of an observation depend on the others in the batch")
    if spec.state:
        assert past is not None
        expect(not np.array_equal(states[0], past.state), "the cell does not change its state")
    returns = rng.normal(size=action.shape).astype(np.float32)
    base: dict[str, Any] = {"action": action, "returns": returns, "mask": np.ones_like(returns)}
    base["observations"] = observations.reshape(*action.shape, *spec.observation)
    if past is not None:
        base["past"] = _past(spec, rng, _ROLLOUTS, spec.t_max)
    before = _weights(network)
    metrics = learner.train({"base": base}, 1e-3)
    expect(metrics["skipped"] == 0, f"the gradient of the loss is not finite (its norm is {metrics['grad_norm']})")
    after = learner.get_state()
    for name, array in before.items():
        changed = not np.array_equal(array, after[f"weights/{name}"])
        expect(changed, f"no gradient of the loss reaches {name}: use all layers in the outputs")


def _past(spec: Spec, rng: np.random.Generator, count: int, steps: int) -> Past | None:
    if not spec.needs_past:
        return None
    action = rng.integers(0, spec.num_actions, (count, steps)).astype(np.int32)
    shapes = (count, steps), (count, spec.state), (count, steps, spec.vectors)
    reward, state, vector = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return Past(state, action, reward, vector)
