"""The weights of another run, from which a new run starts (`--init`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gunreal.config import folders
from gunreal.config.schema import Config, ConfigError
from gunreal.learning.learner import Learner
from gunreal.records import checkpoint
from gunreal.records.warning import warn


def adopt(learner: Learner, config: Config) -> None:
    """Copies the weights of the run `config.init`, and says which layers start anew. The optimizer starts anew.

    Raises:
      ConfigError: the run or its checkpoint does not exist, or no layer fits.
    """
    saved = _load(config)
    copied, others = copy_layers(learner, saved.state)
    heads = {task.name for task in learner.network.tasks}
    others = list(dict.fromkeys(head if (head := name.partition("/")[0]) in heads else name for name in others))
    if not copied:
        raise ConfigError(f"init: no layer of {saved.path} fits; use the --network of that run, or leave out init")
    warn(f"starts with the weights of {saved.path}" + (f", except for {', '.join(others)}" if others else ""))


def copy_layers(learner: Learner, state: Mapping[str, np.ndarray]) -> tuple[list[str], list[str]]:
    """Copies weights and moments from the state of another learner. Layers whose shapes differ are not changed.

    Returns:
      The names of the learner's layers that were copied, and of those that were not.
    """
    own = learner.get_state()
    parts: dict[str, list[str]] = {}
    for name in own:
        if name.startswith(("weights/", "statistics/")):
            parts.setdefault(name.rpartition("/")[0], []).append(name)
    fitting = {
        layer: all(name in state and np.shape(state[name]) == own[name].shape for name in names)
        for layer, names in parts.items()
    }
    own |= {name: state[name] for layer, names in parts.items() if fitting[layer] for name in names}
    learner.set_state(own)
    layers = [layer for layer in parts if layer.startswith("weights/")]
    copied, others = ([x.removeprefix("weights/") for x in layers if fitting[x] is fits] for fits in (True, False))
    return copied, others


def _load(config: Config) -> checkpoint.Checkpoint:
    file = Path(config.init).expanduser()
    try:
        if file.is_file():
            return checkpoint.load(file.parent, file)
        return checkpoint.load(folders.find(config.init, config.logdir))
    except FileNotFoundError as error:
        raise ConfigError(f"init: {error}") from error
