"""The weights of another run, from which a new run starts (`--init`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from gunreal.config import folders, plugins
from gunreal.config.objective import OBJECTIVE, load_objective
from gunreal.config.schema import Config, ConfigError
from gunreal.config.warning import warn
from gunreal.records import checkpoint

_RETURNS, _BONUSES, _OBSERVATIONS = "statistics/return", "statistics/bonus_return", "statistics/observation"


def find(config: Config) -> Path:
    """The folder of the run, or the file of the checkpoint, that `config.init` names.

    Raises:
      ConfigError: there is none.
    """
    file = folders.expanded(config.init)
    if os.path.isfile(file):  # unlike Path.is_file, it accepts a name that is too long
        return file
    try:
        return folders.find(config.init, config.logdir)
    except ConfigError as error:
        raise ConfigError(f"init: {error}") from error


def load(config: Config) -> checkpoint.Checkpoint:
    """Loads the checkpoint that `config.init` names: the newest one of a run, or a file.

    Raises:
      ConfigError: the run or its checkpoint does not exist.
    """
    path = find(config)
    try:
        if path.is_file():
            return checkpoint.load(path.parent.parent if path.parent.name == "checkpoints" else path.parent, path)
        return checkpoint.load(path)
    except checkpoint.NoCheckpoint as error:
        raise ConfigError(f"init: {error}") from error


def adopt(
    state: Mapping[str, np.ndarray], saved: checkpoint.Checkpoint, heads: Collection[str], config: Config
) -> dict[str, np.ndarray]:
    """Returns the state of a new learner with the weights of a checkpoint, and says which layers start anew.

    The optimizer and the version of the learner are kept. If layers of one of the `heads` start anew, it is named once.

    Raises:
      ConfigError: no layer fits.
    """
    # The same layer gives the logits of a policy, or Q values.
    before = {name: saved.extra["config"][name] for name in ("objective", "objective_args")}
    both = load_objective(config).has_policy, _has_policy(dataclasses.replace(config, **before))
    merged, copied, others = copy_layers(state, saved.learned(), ("weights/policy",) if both[0] != both[1] else ())
    if not copied:
        raise ConfigError(f"init: no layer of {saved.path} fits; use the --network of that run, or leave out init")
    names = dict.fromkeys(head if (head := name.partition("/")[0]) in heads else name for name in others)
    warn(f"starts with the weights of {saved.path}" + (f", except for {', '.join(names)}" if names else ""))
    return merged


def _has_policy(config: Config) -> bool:
    """Whether another run has a policy. Objectives of one's own have one, and need not be here."""
    return config.objective not in plugins.available(OBJECTIVE) or load_objective(config).has_policy


def copy_layers(
    own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], left_out: Collection[str] = ()
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Copies weights and moments from another state, without layers that are `left_out` or whose shapes differ.

    The value layer and the moments of returns are copied together or not at all, because it learns returns that these
    normalize. So are the first layer and the moments of observations. Neither layer is copied if only one of the two
    runs has its moments.

    Returns:
      The new state, the names of the layers that were copied, and those of the layers that were not.
    """
    first = next(_layer(name) for name in own if name.startswith("weights/"))
    bound = {_RETURNS: "weights/value", _BONUSES: "weights/bonus_value", _OBSERVATIONS: first}
    parts: dict[str, list[str]] = {}
    for name in own:
        if name.startswith(("weights/", "statistics/")):
            parts.setdefault(bound.get(_layer(name), _layer(name)), []).append(name)
    fitting = {
        layer: layer not in left_out
        and all(name in other and np.shape(other[name]) == np.shape(own[name]) for name in names)
        for layer, names in parts.items()
    }
    for name in other:
        if _layer(name) in bound and name not in own:
            fitting[bound[_layer(name)]] = False
    merged = {**own, **{name: other[name] for layer, names in parts.items() if fitting[layer] for name in names}}
    averages = {name: f"weights/{name.split('/', 2)[2]}" for name in own if name.startswith("average/")}
    merged |= {name: merged[weight] for name, weight in averages.items()}  # averages start as copies
    layers = [layer for layer in parts if layer.startswith("weights/")]
    copied, others = ([x.removeprefix("weights/") for x in layers if fitting[x] is fits] for fits in (True, False))
    return merged, copied, others


def _layer(name: str) -> str:
    return name.rpartition("/")[0]
