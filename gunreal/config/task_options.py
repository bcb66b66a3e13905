"""The options of the tasks of a resumed run, of which only the weights may change."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.config import plugins
from gunreal.config.schema import Config, ConfigError

_TASK = plugins.Kind("task", "gunreal.tasks", object, ())  # `gunreal.tasks.registry` checks the base class


def resumed(saved: Config, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The options that a run has saved, changed by those that are `given` when it is resumed.

    Options of unknown tasks are added without a check. They are refused when the tasks are loaded.

    Raises:
      ConfigError: an option other than a weight would change.
    """
    table = {task: dict(options) for task, options in saved.task.items()}
    for task, options in given.items():
        for name, value in options.items():
            kept = value if name == "weight" else _kept(saved, task, name, value)
            if value != kept:
                raise unchangeable(f"task.{task}.{name}", repr(kept), repr(value))
            table.setdefault(task, {})[name] = value
    return table


def unchangeable(name: str, kept: str, value: str) -> ConfigError:
    """The error for a setting of a resumed run that may not change from `kept` to `value`."""
    return ConfigError(
        f"a resumed run cannot change {name} from {kept} to {value}; leave it out, or start a new run with --init"
    )


def _kept(saved: Config, task: str, name: str, otherwise: Any) -> Any:
    """The value of an option: the one saved, or else its default. `otherwise` if the class of the task is unknown."""
    if name in saved.task.get(task, {}):
        return saved.task[task][name]
    for reference in saved.tasks:
        with contextlib.suppress(ConfigError, TypeError):  # the file is missing, or has no dataclass
            cls = plugins.load_class(_TASK, reference)
            if cls.name == task:
                default = plugins.defaults(cls).get(name, dataclasses.MISSING)
                default = list(default) if isinstance(default, tuple) else default  # as in a TOML file
                return otherwise if default is dataclasses.MISSING else default
    return otherwise
