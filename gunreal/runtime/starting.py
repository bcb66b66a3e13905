"""The weights of another run, from which a new run starts (`--init`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gunreal.config import folders
from gunreal.config.schema import Config, ConfigError
from gunreal.records import checkpoint
from gunreal.records.warning import warn

if TYPE_CHECKING:
    from gunreal.learning.learner import Learner

_VALUE = ("weights/value/", "statistics/return/")  # the value layer learns returns that these moments normalize


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


def begin(learner: Learner, config: Config) -> None:
    """Gives a new learner the weights of the run `config.init`. Raises ConfigError as `load` and `adopt`."""
    heads = [task.name for task in learner.network.tasks]
    learner.set_state(adopt(learner.get_state(), load(config), heads))


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
    except FileNotFoundError as error:
        raise ConfigError(f"init: {error}") from error


def adopt(
    state: Mapping[str, np.ndarray], saved: checkpoint.Checkpoint, heads: Collection[str]
) -> dict[str, np.ndarray]:
    """Returns the state of a new learner with the weights of a checkpoint, and says which layers start anew.

    Args:
      state: the state of the new learner, whose optimizer and version are kept.
      saved: the checkpoint.
      heads: names of the tasks. If layers of a head start anew, the head is named once.

    Raises:
      ConfigError: no layer fits.
    """
    merged, copied, others = copy_layers(state, saved.state)
    if not copied:
        raise ConfigError(f"init: no layer of {saved.path} fits; use the --network of that run, or leave out init")
    names = dict.fromkeys(head if (head := name.partition("/")[0]) in heads else name for name in others)
    warn(f"starts with the weights of {saved.path}" + (f", except for {', '.join(names)}" if names else ""))
    return merged


def copy_layers(
    own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Copies weights and moments from one state to another. Layers whose shapes differ are not copied.

    Neither is the value layer if only one of the two runs normalizes returns.

    Returns:
      The new state, the names of the layers that were copied, and those of the layers that were not.
    """
    parts: dict[str, list[str]] = {}
    for name in own:
        if name.startswith(_VALUE):
            parts.setdefault("weights/value", []).append(name)
        elif name.startswith(("weights/", "statistics/")):
            parts.setdefault(name.rpartition("/")[0], []).append(name)
    fitting = {
        layer: all(name in other and np.shape(other[name]) == np.shape(own[name]) for name in names)
        for layer, names in parts.items()
    }
    if any(name.startswith(_VALUE) and name not in own for name in other):
        fitting["weights/value"] = False
    merged = {**own, **{name: other[name] for layer, names in parts.items() if fitting[layer] for name in names}}
    layers = [layer for layer in parts if layer.startswith("weights/")]
    copied, others = ([x.removeprefix("weights/") for x in layers if fitting[x] is fits] for fits in (True, False))
    return merged, copied, others
