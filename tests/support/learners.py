"""A small learner with one task, and batches for it.

A learner is compiled once per configuration in a file that imports the fixture `shared`: the next test gets it with its
first state.
"""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

import numpy as np
import pytest

from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning import backend, devices
from gunreal.learning.registry import named
from gunreal.learning.task import AuxiliaryTask, of_tasks

SPEC = Spec((1, 28, 36), 2, "uint8", 3, t_max=4)
A3C = {"objective": "a3c", "objective_args": {"correction": "epsilon"}}  # which learns from returns alone
CONFIG = resolved(Config(optimizer="adam", max_grad_norm=0.0, max_batch=12, **A3C))
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")


@dataclasses.dataclass(frozen=True)
class Fit(AuxiliaryTask):
    """Fits given numbers from the convolution features of three frames."""

    name: ClassVar[str] = "fit"
    features: ClassVar[str] = "conv"
    weight: float = 0.25

    def length(self, t_max):
        return 3

    def head(self, spec):
        import keras

        return keras.layers.Dense(2)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.learning import losses

        return losses.masked_mean(ops.sum(ops.square(outputs - batch["target"]), axis=-1), batch["mask"])

    def bootstrap(self, outputs):
        from keras import ops

        return ops.max(outputs[:, 0], axis=-1)


_free: dict[str, list] = {}
_used: list[tuple] = []


@pytest.fixture(autouse=True)
def shared():
    devices.select(BACKEND)
    _used.clear()
    yield
    for key, learner, state in _used:
        learner.set_state(state)
        _free.setdefault(key, []).append((learner, state))


def make_learner(config=CONFIG, tasks=(Fit(),), seed=3, layout="nhwc", kind="small", new=False):
    """A learner that nothing else uses now. `new` compiles it anew, as other arrays in a batch need."""
    key = repr((resolved(config), tasks, seed, layout, kind))
    if new or not _free.get(key):
        made = _make_learner(config, tasks, seed, layout, kind)
        _free.setdefault(key, []).append((made, made.get_state()))
    learner, state = _free[key].pop()
    _used.append((key, learner, state))
    return learner


def _make_learner(config, tasks, seed, layout, kind):
    from gunreal.learning.network import Network

    spec = of_tasks(SPEC._replace(state=32) if kind == "lstm" else SPEC, tasks)
    network = Network(
        spec,
        tasks,
        named(kind, hidden=16),
        data_format=devices.data_format(layout),
        precision=config.precision,
        normalize_observations=config.normalize_observations,
        normalize_returns=config.normalize_returns,
        seed=seed,
        fuse=devices.fused,
        side_by_side=devices.side_by_side(),
    )
    return backend.make_learner(network, resolved(config))


def make_past(count, steps, seed=0):
    rng = np.random.default_rng(seed)
    last_action = rng.integers(-1, 3, (count, steps)).astype(np.int32)
    last_reward = rng.normal(size=(count, steps)).astype(np.float32)
    state, vector = rng.normal(size=(count, 32)).astype(np.float32), np.zeros((count, steps, 0), np.float32)
    return Past(state, last_action, last_reward, vector)


def make_batch(count=3, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.ones((count, 4), np.float32)
    mask[0, 2:] = 0
    seen = rng.integers(0, 256, (count * 7, *SPEC.observation), dtype=np.uint8)
    return {
        "base": {
            "observations": seen[: count * 4].reshape(count, 4, *SPEC.observation),
            "action": rng.integers(0, 3, (count, 4)).astype(np.int32),
            "returns": rng.normal(size=(count, 4)).astype(np.float32),
            "mask": mask,
        },
        "fit": {
            "observations": seen[count * 4 :].reshape(count, 3, *SPEC.observation),
            "target": rng.normal(size=(count, 3, 2)).astype(np.float32),
            "mask": np.ones((count, 3), np.float32),
        },
    }


def seen(batch):
    """All observations `[count * 7, *SPEC.observation]`, those of the rollouts (`[count * 4]`) first."""
    return np.concatenate([rows for name in ("base", "fit") for rows in batch[name]["observations"]])


def with_vtrace(batch):
    """The same batch for a recurrent network that V-trace corrects."""
    base = dict(batch["base"])
    shape = base.pop("returns").shape
    rng = np.random.default_rng(0)
    names = ("log_mu", "reward", "value_t", "discount", "truncated")
    base |= {name: rng.normal(size=shape).astype(np.float32) for name in names}
    base["truncated"][...], base["discount"][...] = 0, 0.9
    return {**batch, "base": {**base, "past": make_past(*shape)}}


def gradients(state):
    """Adam's first moments after its first update are a tenth of the gradients."""
    prefix = "optimizer/mean/"
    return {name.replace(prefix, "weights/"): 10 * state[name] for name in state if name.startswith(prefix)}


def assert_equal_states(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)
