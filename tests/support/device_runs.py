"""A device run without a network: its environments are scripted, and its predictions and updates are known."""

from __future__ import annotations

import os

import jax
import numpy as np
import pytest
import scripted_functional
from jax import numpy as jnp

from gunreal.config.objective import load_objective
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config
from gunreal.device import store
from gunreal.device.acting import Acting, Actors
from gunreal.device.dqn_program import QProgram
from gunreal.device.environment import frames
from gunreal.device.program import Program
from gunreal.device.sharding import Places
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Scalars

SCRIPT = "---T -t ----t ~"
# Tasks use Keras, which has one backend in a process. test_tasks_on_jax.py runs these tests in another one.
keras_on_jax = pytest.mark.skipif(os.environ.get("KERAS_BACKEND") != "jax", reason="run by test_tasks_on_jax.py")


class KnownLearner:
    """Its weights are `(number of updates,)`. It remembers the batches that it learns from."""

    def __init__(self, spec, objective=None):
        self.objective = objective
        self.arrays = ((jnp.float32(0),), ())
        self._spec, self.batches, self.rates = spec, [], []

    def replace(self, arrays, version=None):
        self.arrays = arrays

    def functional_predict(self, weights, observations, past, head="base"):
        value = value_of(observations) + weights[0]
        if head != "base":
            return (value,)
        logits = jnp.stack([jnp.sin(value), jnp.cos(value), jnp.zeros_like(value)], 1)
        return (logits, value, past.state + 1) if self._spec.state else (logits, value)

    def functional(self, method, weights, batch):
        assert method == "recall"
        shape, seen = batch["base"]["mask"].shape, batch["base"]["observations"]
        logits, value, *_ = self.functional_predict(weights, seen.reshape(-1, *seen.shape[2:]), None)
        return {"logits": logits.reshape(*shape, 3), "value": value.reshape(shape)}

    def functional_update(self, arrays, batch, rates, version):
        jax.debug.callback(self._learn, batch, *rates[:2], ordered=True)
        return ((arrays[0][0] + 1,), ()), Scalars(("loss_total", "skipped"), jnp.array([0.5, 0.0]))

    def _learn(self, batch, rate, entropy):
        self.batches.append(batch)
        self.rates.append((float(rate), float(entropy)))


def value_of(observations):
    """A value that differs from observation to observation."""
    return 0.1 * (observations[:, 0] % 7) + observations[:, 1] + 0.01 * observations[:, 2]


def configure(**options) -> Config:
    """A configuration of the scripted environments, with small batches."""
    defaults = {"runner": "device", "env": "scripted_functional:make", "env_args": {"script": SCRIPT}, "agents": 8}
    defaults |= {"t_max": 4, "objective": "a3c", "device_spread": 0, "reward_clip": 0.6}
    return resolved(Config(**(defaults | options)), Facts(memory=2**40))


def interface(config: Config, state: int = 0) -> Spec:
    """The interface of the scripted environments."""
    return Spec((3,), 1, "float32", 3, config.t_max, config.discount, config.reward_clip, state)


def make_acting(config: Config, state: int = 0) -> Acting:
    """The agents of a run."""
    spec = interface(config, state)
    env = scripted_functional.make(**config.env_args)
    convert = frames(config, spec, env.observation_space)
    learner = KnownLearner(spec, load_objective(config))
    return Acting(config, spec, env, convert, learner.objective, learner.functional_predict, env.step)


def filled(
    config: Config, rows: int, blocks: int, state: int = 0, weight: float = 0, exploration: float = 0
) -> tuple[Actors, store.Store, dict[str, np.ndarray]]:
    """Blocks of two steps in a store of two groups.

    Returns:
      The agents after the last step, the store, and all steps of the second group, `[n, steps, ...]`.
    """
    acting, found = make_acting(config, state), []
    spec = interface(config, state)._replace(priorities=("base",) if config.objective_args.get("priority") else ())
    actors, act = jax.jit(acting.start)(), jax.jit(acting.play, static_argnums=2)
    kept = store.blank(spec, rows, 2, config.agents, {})
    for version in range(blocks):
        actors, block, _ = act((np.float32(weight),), actors, 2, exploration)
        kept = store.append(kept, block, version)
        found.append(block)
    steps = {name: np.concatenate([block[name] for block in found]).swapaxes(0, 1)[1::2] for name in found[0]}
    return actors, kept, steps


def make_program(config: Config, state: int = 0, tasks=()) -> tuple[Program, KnownLearner]:
    """A program and what it trains."""
    spec, env = interface(config, state), scripted_functional.make(**config.env_args)
    learner = KnownLearner(spec, load_objective(config))
    convert = frames(config, spec, env.observation_space)
    kind = QProgram if learner.objective.replays else Program
    return kind(config, spec, tasks, learner, env, convert, Places(config)), learner
