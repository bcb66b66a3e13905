"""Rules for a configuration beyond the types of its fields. The error for each rule names the fix."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from gunreal.config.derived import largest_divisor, per_process, replay_steps
from gunreal.config.objective import load_objective
from gunreal.config.packages import is_installed
from gunreal.config.resolve import resolved
from gunreal.config.schema import FIELDS, OF, Config, ConfigError, check_limits, close_match, is_auto
from gunreal.config.values import is_number

_MIN_MEMORY = 64 * 2**20
_MOST_PROCESSED = 4096  # agents of a run with processes


class Belonging(NamedTuple):
    """What a field may belong to.

    Attributes:
      exists: whether a run has it.
      without: where the field has no effect.
      fix: what gives it one.
    """

    exists: Callable[[Config], Any]
    without: str
    fix: str


def _evaluates(config: Config) -> bool:
    return bool(config.eval_steps or config.eval_minutes)


BELONGING = {
    "processes": Belonging(lambda config: config.runner != "device", "in device runs", "use --runner parallel"),
    "threads": Belonging(
        lambda config: config.runner in ("parallel", "cluster"), "in {runner} runs", "use --runner parallel"
    ),
    "waits": Belonging(
        lambda config: config.runner != "serial" or _evaluates(config),
        "in serial runs without evaluations",
        "use --runner parallel",
    ),
    "device": Belonging(lambda config: config.runner == "device", "in {runner} runs", "use --runner device"),
    "cluster": Belonging(lambda config: config.runner == "cluster", "in {runner} runs", "use --runner cluster"),
    "rounds": Belonging(lambda config: config.sync == "on", "with --sync off", "use --sync on"),
    "scaling": Belonging(
        lambda config: config.rate_scaling != "off", "without --rate_scaling", "add --rate_scaling sqrt"
    ),
    "evaluations": Belonging(_evaluates, "without evaluations", "add --eval_steps"),
    "tasks": Belonging(lambda config: config.tasks, "without tasks", "add --tasks"),
    "replay": Belonging(replay_steps, "without tasks", "add --tasks"),
    "scheduler": Belonging(lambda config: config.scheduler != "off", "without the scheduler", "add --scheduler queue"),
    "rmsprop": Belonging(lambda config: config.optimizer == "rmsprop", "on adam", "use --optimizer rmsprop"),
    "adam": Belonging(lambda config: config.optimizer == "adam", "on rmsprop", "use --optimizer adam"),
    "Atari": Belonging(
        lambda config: config.env.startswith("ALE/"), "on {env}", "choose an Atari game, such as ALE/Pong-v5"
    ),
    "images": Belonging(lambda config: True, "", ""),  # `check_images` knows, when the environment has been opened
}
OF_IMAGES = {name for name, of in OF.items() if "images" in of}


def check(config: Config, given: Collection[str] = frozenset(FIELDS)) -> None:
    """Raises ConfigError for the first invalid value. The message is one line that names the fix.

    Args:
      given: the fields that the user has just set. When a run is resumed, other fields keep their saved values even
        where those have no effect.
    """
    for name, field in FIELDS.items():
        if not is_auto(config, name):
            check_limits(name, getattr(config, name), field)
    _check_names(config)
    _check_system(config)
    _check_learner(resolved(config))
    if config.runner == "device":
        _check_device(resolved(config))
    _check_effect(config, given)
    _check_packages(config)  # last, so that the other errors do not depend on what is installed


def _check_names(config: Config) -> None:
    if not config.env:
        raise ConfigError("env is empty; give a Gymnasium id, as in --env ALE/Pong-v5")
    if not config.logdir:
        raise ConfigError("logdir is empty; give a folder, or . for the current one")
    if config.name in (".", "..") or "/" in config.name or "\\" in config.name or "\0" in config.name:
        raise ConfigError(f"name {config.name!r} is not a folder name; set its parent folder with --logdir")
    if "\0" in config.logdir:
        raise ConfigError(f"logdir {config.logdir!r} is not the path of a folder; remove the null character")
    if config.address == "local":  # a word of Ray's, which starts one that the run does not protect
        raise ConfigError("address is 'local', which is no address; to train on this machine, set nodes only")
    if not config.network:
        raise ConfigError("network is empty; leave it out, or give a name such as small, or module:Class")
    if not config.objective:
        raise ConfigError("objective is empty; leave it out, or give a name such as a3c, or module:Class")
    if "" in config.tasks:
        raise ConfigError(f"tasks {','.join(config.tasks)!r} contains an empty name; write --tasks pc,vr,rp")
    twice = [task for task in config.tasks if config.tasks.count(task) > 1]
    if twice:
        fix = f"remove one of them from tasks, or give it a name of its own, as in other={twice[0]}"
        raise ConfigError(f"task {twice[0]} is named twice; {fix}")
    known = [task.partition("=")[0] for task in config.tasks]
    named_by_class = any(":" in task for task in known)  # the name of such a task is unknown until it is loaded
    for task, options in config.task.items():
        if task not in known and not named_by_class:
            hint = close_match(task, known) or "; add it to tasks or remove its options"
            raise ConfigError(f"task.{task} has options, but {task} is not in tasks{hint}")
        weight = options.get("weight", 0.0)
        if not is_number(weight) or weight < 0:
            raise ConfigError(f"task.{task}.weight is {weight!r}, but must be a number of at least 0")
    named = [(name, getattr(config, name)) for name in ("env", "network", "objective")]
    for name, text in (*named, *(("task", task.rpartition("=")[2]) for task in config.tasks)):
        _check_module(name, text)
    for name in FIELDS:
        _check_savable(name, getattr(config, name))


def _check_module(kind: str, text: str) -> None:
    module, _, attribute = text.rpartition(":")
    if "/" in module or module.endswith(".py"):
        name = module.rpartition("/")[2].removesuffix(".py")
        folder = os.path.dirname(module)
        elsewhere = bool(folder) and not (os.path.exists(folder) and os.path.samefile(folder, "."))
        where = f", and run the command in the folder {folder}" if elsewhere else ""
        raise ConfigError(f"{kind} {text!r} names a file; write {name}:{attribute}, without a path and .py{where}")


def _check_savable(path: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{path} has the key {key!r}, which TOML cannot hold; use strings as keys")
            _check_text(path, key)
            _check_savable(f"{path}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_savable(path, item)
    elif isinstance(value, str):
        _check_text(path, value)
    elif not isinstance(value, bool | int | float):
        raise ConfigError(f"{path} is {value!r}, which TOML cannot hold; use strings, numbers, booleans, lists, tables")


def _check_text(path: str, text: str) -> None:
    if not text.isascii() and text.encode(errors="ignore").decode() != text:  # such as bytes of another encoding
        raise ConfigError(f"{path} contains {text!r}, which is not Unicode text; write it in UTF-8")


def _is_shared_evenly(agents: int, most: int) -> bool:
    return 4 * largest_divisor(agents, most) >= min(agents, most)  # 34 agents would need 17 processes of 2


def _check_system(config: Config) -> None:
    agents, most = config.agents, config.agents_per_process
    if agents > _MOST_PROCESSED and config.runner != "device":
        raise ConfigError(f"agents is {agents}, but processes take at most {_MOST_PROCESSED}; use --runner device")
    if config.runner != "device" and not _is_shared_evenly(agents, most):
        lower = next(n for n in range(agents, 0, -1) if _is_shared_evenly(n, most))
        upper = next(n for n in range(agents, agents + 2 * most) if _is_shared_evenly(n, most))
        raise ConfigError(
            f"{agents} agents cannot be divided evenly among processes of about {most}; "
            f"use --agents {lower} or --agents {upper}, or --agents_per_process {per_process(config)}"
        )
    if 0 < replay_steps(config) < config.t_max:
        raise ConfigError(f"replay_size {config.replay_size} is below t_max {config.t_max}; raise replay_size")
    group = -(-per_process(config) // 2)
    if config.max_batch < group and config.runner != "device":
        raise ConfigError(f"max_batch {config.max_batch} is below the group size of {group} agents; raise max_batch")
    if not is_auto(config, "memory_limit") and config.memory_limit < _MIN_MEMORY:
        fix = "give a unit" if config.memory_limit < 2**10 else "raise it"
        raise ConfigError(
            f"memory_limit is {config.memory_limit} bytes, but must be at least {_MIN_MEMORY // 2**20}MiB; "
            f"{fix}, as in --memory_limit 800MB"
        )


def _check_learner(config: Config) -> None:
    objective = load_objective(config)
    if objective.replays and config.runner != "device":
        raise ConfigError(f"{objective.name} runs on devices only; add --runner device or use --objective ppo")
    if objective.phase() and (config.trainers > 1 or config.scheduler != "off" or config.runner == "cluster"):
        raise ConfigError(
            f"{objective.name} has a further phase of updates, for one trainer on one node; leave out more, and "
            "--scheduler, which adds some"
        )
    try:
        objective.check(config)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if config.learning_rate_end > config.learning_rate:
        raise ConfigError(
            f"learning_rate_end {config.learning_rate_end} is above learning_rate {config.learning_rate}; lower it"
        )


def _check_effect(config: Config, given: Collection[str]) -> None:
    """Refuses fields that have just been set, and that other fields which may change leave without effect."""
    for name, (_, where, fix) in _without_effect(config):
        if _is_set(config, name, given):
            where = where.format(env=config.env, runner=config.runner)
            raise ConfigError(f"{name} has no effect {where}; leave it out or {fix}")


def without_effect(config: Config) -> set[str]:
    """The fields that others leave without effect."""
    return {name for name, _ in _without_effect(config)}


def only_in_others(lost: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Of the fields without effect in each of several configurations, those that have one in another.

    What has an effect in none is a mistake, which `check` refuses.
    """
    nowhere = set.intersection(*lost.values())
    return {name: fields - nowhere for name, fields in lost.items()}


def _without_effect(config: Config) -> Iterator[tuple[str, Belonging]]:
    """The fields without effect, and what they belong to."""
    for name, of in OF.items():
        for found in map(BELONGING.__getitem__, of):
            if not found.exists(config):
                yield name, found
    objective = load_objective(config)
    for name in objective.without_effect(config):
        yield name, Belonging(bool, f"on {objective.name}", "use --objective ppo")


def check_images(config: Config, given: Collection[str], is_image: bool) -> None:
    """Raises ConfigError for the first field in `given` that has an effect on images only, if there are none."""
    for name in sorted(OF_IMAGES):
        if not is_image and _is_set(config, name, given):
            raise ConfigError(f"{name} has no effect on {config.env}, which has no images; leave it out")


def _is_set(config: Config, name: str, given: Collection[str]) -> bool:
    return name in given and getattr(config, name) != FIELDS[name].default


def _check_device(config: Config) -> None:
    if config.devices != "all" and not (config.devices.isdecimal() and int(config.devices) > 0):
        raise ConfigError(f"devices is {config.devices!r}, but must be a number of at least 1, or all")
    groups = config.device_batches
    if config.t_max % groups:
        raise ConfigError(
            f"device_batches {groups} does not divide t_max {config.t_max}; use --device_batches "
            f"{largest_divisor(config.t_max, groups)}"
        )
    if config.agents % groups:
        raise ConfigError(
            f"{config.agents} agents cannot be divided into {groups} device_batches; use --agents "
            f"{-(-config.agents // groups) * groups}"
        )


def _check_packages(config: Config) -> None:
    if config.runner == "cluster" and not is_installed("ray"):
        raise ConfigError('several nodes need Ray; install it with pip install "gunreal[cluster]"')
    if config.runner == "device" and not is_installed("jax"):
        raise ConfigError('device runs need JAX; install it with pip install "gunreal[device]"')
    if config.track == "wandb" and not is_installed("wandb"):
        raise ConfigError('--track wandb needs the package wandb; run pip install "gunreal[wandb]"')
