"""Conversion of values to the types of configuration fields, and names for functions and classes."""

from __future__ import annotations

import importlib
import math
import numbers
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gunreal.config.fields import AUTO

_KINDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
_WANTED = {"tasks": "a list of names and classes", "task": "a table of options for each task", "env_args": "a table"}
_WANTED |= {"network_args": "a table", "network": "a name or a class"}
_WANTED |= {"objective_args": "a table", "objective": "a name or a class"}
_WANTED |= {"env": "a string, or the class or a function that makes it, and not an instance"}
_INSTANCES = "; set options with task, and name the copies of a task as in near=mh"
_FIX = "define it in a module, such as mine.py, and import it from there"


def converted(name: str, kind: Any, value: Any) -> Any:
    """Converts `value` to the type `kind` of field `name`.

    Whole floats such as 8e6 become int, int becomes float, and a list of tasks becomes a tuple. A function or class as
    `env`, and a class in `tasks` or as `network` or `objective`, becomes "module:name". Tuples in tables become lists,
    as in a TOML file, so that a resumed run has the same options.

    Raises:
      ValueError: the value has another type. The message is one line.
    """
    if kind is int and is_number(value) and float(value).is_integer():
        return int(value)
    if kind is float and is_number(value):
        return float(value)
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if name == "env" and callable(value):
        return reference(name, value)
    if name == "tasks" and value == AUTO:
        return (AUTO,)
    if name == "tasks" and isinstance(value, list | tuple) and all(isinstance(task, str | type) for task in value):
        return tuple(task if isinstance(task, str) else reference(name, task) for task in value)
    if name in ("network", "objective") and isinstance(value, type):
        return reference(name, value)
    if name in ("env_args", "network_args", "objective_args") and _is_table(value):
        return _plain(value)
    if name == "task" and _is_table(value) and all(_is_table(options) for options in value.values()):
        return _plain(value)
    fix = _INSTANCES if name == "tasks" and isinstance(value, list | tuple) else ""
    raise ValueError(f"{name} is {value!r}, but must be {_WANTED.get(name) or _KINDS[kind]}{fix}")


def one_line(text: str) -> str:
    """The text with spaces in place of its line breaks."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def reference(field: str, thing: Any) -> str:
    """The name "module:name" of a function or class, by which other processes and later programs import it.

    Raises:
      ValueError: it cannot be imported by its name. The message is one line that names the fix.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        raise ValueError(f"{field} is {thing!r}, which has no name to import it by; give a function or a class")
    if module == "__main__":
        raise ValueError(f"{field}: other processes cannot import {name} from a script or a notebook; {_FIX}")
    if not name.isidentifier():  # `<lambda>`, `make.<locals>.inner`, `Class.method`
        raise ValueError(f"{field}: {name} cannot be imported, because it is not at the top of a module; {_FIX}")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        found = None
    if found is not thing:
        raise ValueError(f"{field}: {module} does not give {name} when it is imported; {_FIX}")
    return f"{module}:{name}"


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number. Booleans do not count as numbers."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, dict | MappingProxyType):  # not every mapping: a Dict space is a value
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
