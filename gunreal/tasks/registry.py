"""Finds auxiliary tasks by name and sets their options."""

from __future__ import annotations

import configparser
import dataclasses
import difflib
import importlib
import traceback
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from gunreal.config.schema import ConfigError
from gunreal.tasks.base import AuxiliaryTask

GROUP = "gunreal.tasks"
_RESERVED = ("base", "policy", "value", "total")  # names of the actor-critic's queues and metrics


Options = Mapping[str, Mapping[str, Any]]


def load_tasks(names: Sequence[str], options: Options | None = None) -> tuple[AuxiliaryTask, ...]:
    """Loads tasks by name and sets their options. No other tasks are imported.

    Args:
      names: names in the entry-point group `gunreal.tasks`, or "module:Class".
      options: options by task name, such as `{"pc": {"weight": 0.05}}`.

    Returns:
      The tasks, in the order of `names`.

    Raises:
      ConfigError: a task or an option is unknown, a value has the wrong type, a task is named twice, or a plug-in
        cannot be imported. For an import error the message names the plug-in's file.
    """
    options = options or {}
    classes = [_load_class(name) for name in names]
    known = [cls.name for cls in classes]
    for name in known:
        if known.count(name) > 1:
            raise ConfigError(f"task {name!r} is named more than once; name it once")
    for name in options:
        if name not in known:
            raise ConfigError(f"options are set for {name!r}, which is not among the tasks ({_listed(known)}); add it")
    return tuple(_build(cls, options.get(cls.name, {})) for cls in classes)


def available() -> dict[str, EntryPoint]:
    """All installed tasks, by name. None of them is imported.

    In a source checkout that is not installed, the built-in tasks are read from setup.cfg.
    """
    checkout = configparser.ConfigParser(interpolation=None)
    checkout.read(Path(__file__).parents[2] / "setup.cfg")
    lines = checkout.get("options.entry_points", GROUP, fallback="").split("\n")
    pairs = [line.split("=") for line in lines if "=" in line]
    found = {name.strip(): EntryPoint(name.strip(), value.strip(), GROUP) for name, value in pairs}
    for point in entry_points(group=GROUP):
        if found.setdefault(point.name, point).value != point.value:
            both = f"{found[point.name].value} and {point.value}"
            raise ConfigError(f"two installed packages provide a task {point.name!r}, {both}; uninstall one of them")
    return found


def _load_class(name: str) -> type[AuxiliaryTask]:
    module, _, attribute = name.partition(":")
    if not attribute:
        points = available()
        if name not in points:
            hint = _closest(name, points)
            raise ConfigError(f"unknown task {name!r}{hint}; available: {_listed(points)}, or module:Class")
        module, _, attribute = points[name].value.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a plug-in's module can raise anything
        raise ConfigError(f"cannot load task {name!r} from {module}:{attribute}: {_place(error)}") from error
    if not (isinstance(cls, type) and issubclass(cls, AuxiliaryTask)):
        raise ConfigError(f"task {name!r}: {module}:{attribute} is not a subclass of gunreal.tasks.base.AuxiliaryTask")
    own = getattr(cls, "name", None)
    called = f"task {name!r}: {attribute}.name is {own!r}"
    if not (isinstance(own, str) and own.isidentifier()) or own in _RESERVED:
        raise ConfigError(f"{called}; choose an identifier other than {', '.join(_RESERVED)}")
    if ":" not in name and own != name:
        raise ConfigError(f"{called}; give the class and its entry point the same name")
    return cls


def _place(error: Exception) -> str:
    """The error message and the file in which it occurred."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}:{error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen importlib")]
    # If the module itself is missing, no frame belongs to the plug-in and the last one is importlib's.
    outside = [f for f in frames if f.filename not in (__file__, importlib.__file__)]
    where = f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{where}"


def _build(cls: type[AuxiliaryTask], options: Mapping[str, Any]) -> AuxiliaryTask:
    types_by_name = typing.get_type_hints(cls)
    allowed = [field.name for field in dataclasses.fields(cls) if field.init]
    for option, value in options.items():
        if option not in allowed:
            hint = _closest(option, allowed)
            raise ConfigError(f"task {cls.name!r} has no option {option!r}{hint}; available: {_listed(allowed)}")
        wanted = types_by_name[option]
        if not _fits(value, wanted):
            kind = wanted.__name__ if isinstance(wanted, type) else wanted
            raise ConfigError(f"{cls.name}.{option} is {value!r}, but must be of type {kind}")
    task = cls(**options)
    if not 0 <= task.weight < float("inf"):
        raise ConfigError(f"{cls.name}.weight is {task.weight}, but must be finite and at least 0")
    return task


def _fits(value: Any, wanted: Any) -> bool:
    """Whether `value` has the wanted plain type, or one of a union. Other annotations are not checked."""
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in typing.get_args(wanted))
    wanted = typing.get_origin(wanted) or wanted
    if wanted not in (bool, int, float, str, list, tuple, dict, type(None)):
        return True
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else (list, tuple) if wanted is tuple else wanted)


def _closest(name: str, names: Iterable[str]) -> str:
    match = difflib.get_close_matches(name, list(names), 1)
    return f", did you mean {match[0]!r}?" if match else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
