"""The configurations of an experiment's settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.command_line import with_effect

from experiments.table import TASKS, Experiment
from gunreal.config import flags
from gunreal.config.schema import Config, ConfigError, close_match

_NO_TASK = "-"
_OWN = {"seed": "the experiment", "name": "the experiment's name", "logdir": "--logdir"}


def choose(known: Mapping[str, Experiment], name: str, settings: str) -> Experiment:
    """Returns the experiment with the listed settings, or with all of them."""
    if name not in known:
        raise ConfigError(f"unknown experiment {name!r}{close_match(name, known)}; available: {', '.join(known)}")
    experiment = known[name]
    chosen = settings.split(",") if settings else list(experiment.settings)
    unknown = next((setting for setting in chosen if setting not in experiment.settings), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no setting {unknown!r}; available: {', '.join(experiment.settings)}")
    return dataclasses.replace(experiment, settings={setting: experiment.settings[setting] for setting in chosen})


def configs(experiment: Experiment, extra: Sequence[str], env: str, logdir: str) -> dict[str, Config]:
    """Returns the configuration of each setting.

    Args:
      experiment: the experiment.
      extra: training flags for all settings. Options of a task only apply to settings with this task.
      env: the environment. An empty string stands for the one in `extra` or the experiment's default.
      logdir: the folder of runs. An empty string stands for `runs/ENVIRONMENT`.

    Raises:
      ConfigError: a flag or setting is invalid.
    """
    chosen = {name: setting.fields for name, setting in experiment.settings.items()}
    named = (task for fields in chosen.values() for task in fields.get("tasks", ()))
    tasks = (*dict.fromkeys([*TASKS, *named]), _NO_TASK)  # options of all tasks are valid; _NO_TASK marks this default
    common, extras = flags.from_flags(["train", "--tasks", ",".join(tasks), *extra])
    if extras.resume:
        raise ConfigError("--resume can't be used after --; experiments continue by themselves, so leave it out")
    given = {field: value for field, value in extras.given.items() if (field, value) != ("tasks", tasks)}
    _check_extra(experiment.name, chosen, given)
    env = env or given.get("env") or experiment.envs[0]
    fields = {name: value for name, value in experiment.common.items() if name not in given}
    fields |= {"tasks": given.get("tasks", ()), "env": env}
    fields["logdir"] = logdir or str(Path("runs") / env.replace(":", "/").rpartition("/")[2])
    common = dataclasses.replace(common, **fields)
    planned = with_effect({name: _config(common, of) for name, of in chosen.items()})
    return {name: with_backend(config, given) for name, config in planned.items()}


def with_backend(config: Config, given: Collection[str]) -> Config:
    """Returns the configuration that a run saves, which has the backend jax on devices unless another one is given."""
    on_jax = config.runner == "device" and "backend" not in given
    return dataclasses.replace(config, backend="jax") if on_jax else config


def _check_extra(name: str, chosen: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    for field, instead in _OWN.items():
        if field in given:
            raise ConfigError(f"--{field} is set by {instead}; leave it out after --")
    for setting, fields in chosen.items():
        for field, value in fields.items():
            if field in given and given[field] != value:
                raise ConfigError(f"setting {setting} of {name} has {field} {value!r}; leave --{field} out after --")


def _config(common: Config, fields: Mapping[str, Any]) -> Config:
    config = dataclasses.replace(common, **fields)
    if any(":" in task for task in config.tasks):  # the name of such a task is unknown until it is loaded
        return config
    return dataclasses.replace(config, task={task: config.task[task] for task in config.tasks if task in config.task})
