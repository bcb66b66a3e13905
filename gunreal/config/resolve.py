"""The rules by which gunreal chooses the value of a setting that is "auto".

A run is resolved once, before anything is saved or started. Whatever comes after reads plain values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from gunreal.config import plugins
from gunreal.config.objective import load_objective
from gunreal.config.schema import Config, is_auto

SMALL_BATCH = 80  # agent steps at least of a batch that a device run uses once
_PER_REDUCER = 16 * 2**20  # bytes of gradients a round that one parameter server should take at most

# Settings that follow from the machine. A run saves them as they were given, and chooses them again at each start.
OF_MACHINE = ("emulator", "memory_limit", "layout", "threads", "nodes", "reducers")


class Facts(NamedTuple):
    """What chosen values depend on besides other settings. None is unknown, and what depends on it stays "auto".

    Attributes:
      is_image: whether the environment is learned from as images.
      image_key: the entry of its `Dict` observation that is learned from.
      vector_keys: the entries that are learned from beside it, separated by commas.
      emulator: the emulator that has opened it.
      cores: number of cores that a process may use.
      memory: number of bytes that a run may use.
      has_gpu: whether the network runs on a GPU.
      machines: number of machines of a cluster.
      weights: number of weights of the network.
    """

    is_image: bool | None = None
    image_key: str | None = None
    vector_keys: str | None = None
    emulator: str | None = None
    cores: int | None = None
    memory: int | None = None
    has_gpu: bool | None = None
    machines: int | None = None
    weights: int | None = None


_NOTHING = Facts()


def resolved(config: Config, facts: Facts = _NOTHING) -> Config:
    """Replaces each "auto" by the value that it stands for, and adds all options of the objective.

    A setting without effect on the run stays "auto".
    """
    for name, choose in _RULES.items():
        if is_auto(config, name) and (value := choose(config, facts)) is not None:
            config = dataclasses.replace(config, **{name: value})
    options = plugins.options(load_objective(config).resolved(config))
    return dataclasses.replace(config, objective_args=options)


def as_given(config: Config, given: Config) -> Config:
    """A resolved configuration for any machine: its settings of the machine are those that were `given`."""
    return dataclasses.replace(config, **{name: getattr(given, name) for name in OF_MACHINE})


def chosen(given: Config, config: Config) -> dict[str, Any]:
    """The settings of the machine that were "auto" in `given`, with their values in `config`."""
    return {name: getattr(config, name) for name in OF_MACHINE if is_auto(given, name) and not is_auto(config, name)}


def _device_batches(config: Config, facts: Facts) -> int | None:
    if config.runner != "device":
        return None
    if not load_objective(config).uses().is_once:
        return 1
    groups = (n for n in range(config.t_max, 0, -1) if config.t_max % n == config.agents % n == 0)
    return next((n for n in groups if config.agents // n * config.t_max >= SMALL_BATCH), 1)


def _of_objective(name: str) -> Callable[[Config, Facts], Any]:
    return lambda config, facts: load_objective(config).settings(config)[name]


def _threads(config: Config, facts: Facts) -> int | None:
    # Nothing else runs beside the updates of a serial or device run, and agents wait during most updates of a batch.
    all_cores = config.runner in ("serial", "device") or not load_objective(config).uses().is_once
    return facts.cores if all_cores or facts.cores is None else max(1, facts.cores // 4)


def _reducers(config: Config, facts: Facts) -> int | None:
    """By the bytes of all gradients, at most one on each machine."""
    if config.runner != "cluster" or facts.machines is None or facts.weights is None:
        return None
    return max(1, min(facts.machines, 8, math.ceil(4 * facts.weights * config.nodes / _PER_REDUCER)))


# In this order, because some follow from others.
_RULES: dict[str, Callable[[Config, Facts], Any]] = {
    "reward_clip": lambda config, facts: 1.0 if config.env.startswith("ALE/") else 0.0,
    "image_key": lambda config, facts: None if config.runner == "device" else facts.image_key,
    "vector_keys": lambda config, facts: None if config.runner == "device" else facts.vector_keys,
    "emulator": lambda config, facts: facts.emulator,
    "network": lambda config, facts: {None: None, True: "small", False: "mlp"}[facts.is_image],
    "device_batches": _device_batches,
    "min_batch": lambda config, facts: None if config.runner == "device" else _of_objective("min_batch")(config, facts),
    "learning_rate": _of_objective("learning_rate"),
    "entropy": _of_objective("entropy"),
    "entropy_end": lambda config, facts: config.entropy,
    "threads": _threads,
    "memory_limit": lambda config, facts: facts.memory,
    "layout": lambda config, facts: {None: None, True: "nchw", False: "nhwc"}[facts.has_gpu],
    "nodes": lambda config, facts: facts.machines if config.runner == "cluster" else None,
    "reducers": _reducers,
}
