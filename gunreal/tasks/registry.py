"""Finds auxiliary tasks by name and sets their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gunreal.config import plugins
from gunreal.config.fields import AUTO
from gunreal.config.schema import ConfigError
from gunreal.learning.task import AuxiliaryTask

# Names of the actor-critic's metrics and layers, of queues and of other entries of a batch. No task may have them.
_RESERVED = (
    *("base", "bonus", "policy", "value", "bonus_value", "torso", "total", "train", AUTO),
    *("observations", "past", "acted", "old", "now"),
)
TASK = plugins.Kind("task", "gunreal.tasks", AuxiliaryTask, _RESERVED)

Options = Mapping[str, Mapping[str, Any]]


def load_tasks(names: Sequence[str], options: Options | None = None) -> tuple[AuxiliaryTask, ...]:
    """Loads tasks by name and sets their options. No other tasks are imported.

    Args:
      names: names in the entry-point group `gunreal.tasks`, or "module:Class". Each may follow a name for this copy of
        the task, as in "near=mh".
      options: options by task name, such as `{"pc": {"weight": 0.05}}`.

    Returns:
      The tasks, in the order of `names`.

    Raises:
      ConfigError: a task or an option is unknown, a value has the wrong type, a task is named twice, or a plug-in
        cannot be imported. For an import error the message names the plug-in's file.
    """
    options = options or {}
    pairs = [(name.rpartition("=")[0], plugins.load_class(TASK, name.rpartition("=")[2])) for name in names]
    known = [own or cls.name for own, cls in pairs]
    for name in known:
        if not name.isidentifier() or name in TASK.reserved:
            others = ", ".join(TASK.reserved)
            raise ConfigError(f"a task is called {name!r}; choose an identifier other than {others}")
        if known.count(name) > 1:
            fix = f"name it once, or give a copy a name of its own, as in other={name}"
            raise ConfigError(f"task {name!r} is named more than once; {fix}")
    for name in options:
        if name not in known:
            there = plugins.listed(known)
            raise ConfigError(f"options are set for {name!r}, which is not among the tasks ({there}); add it")
    return tuple(_build(cls, options.get(name, {}), name) for name, (_, cls) in zip(known, pairs, strict=True))


def _build(cls: type[AuxiliaryTask], options: Mapping[str, Any], name: str) -> AuxiliaryTask:
    task: AuxiliaryTask = plugins.build(TASK, cls, options, name)
    if name != cls.name:
        object.__setattr__(task, "name", name)
    if not 0 <= task.weight < float("inf"):
        raise ConfigError(f"{name}.weight is {task.weight}, but must be finite and at least 0")
    if not 0 <= task.rate < float("inf") or (task.max_grad_norm or 0) < 0:
        both = f"rate {task.rate} and max_grad_norm {task.max_grad_norm}"
        raise ConfigError(f"task {name!r} has {both}, which must be finite and at least 0")
    for count in ("replays", "updates"):
        if not isinstance(getattr(task, count), int) or getattr(task, count) < 1:
            raise ConfigError(f"task {name!r} has {count} = {getattr(task, count)!r}; use an int of 1 or more")
    return task
