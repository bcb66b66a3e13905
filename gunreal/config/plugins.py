"""Plug-ins, found by name in a group of entry points or as "module:Class", and their options."""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import importlib
import inspect
import sysconfig
import traceback
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gunreal.config.schema import ConfigError, check_limits, close_match
from gunreal.config.values import is_number, one_line

FIND_MODULE = "install it, start gunreal in its folder, add that to PYTHONPATH, or correct the name"  # if `is_missing`

_Base = TypeVar("_Base")
_HERE = str(Path(__file__).parents[1])  # this library
_LIBRARIES = tuple(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))  # and installed packages


class Kind(NamedTuple):
    """A kind of plug-in.

    Attributes:
      noun: what a plug-in is called in messages, such as "task".
      group: group of entry points, such as "gunreal.tasks".
      base: class that every plug-in inherits from: a dataclass with a class attribute `name`.
      reserved: names that no plug-in may have.
    """

    noun: str
    group: str
    base: type
    reserved: tuple[str, ...]


def option(default: Any, **limits: Any) -> Any:
    """An option of a plug-in with limits: `choices`, `low` and `high` (inclusive), `above` and `below`."""
    return dataclasses.field(default=default, metadata=limits)


def available(kind: Kind) -> dict[str, EntryPoint]:
    """All installed plug-ins of a kind, by name. None of them is imported.

    In a source checkout that is not installed, the built-in ones are read from setup.cfg.
    """
    checkout = configparser.ConfigParser(interpolation=None)
    checkout.read(Path(__file__).parents[2] / "setup.cfg")
    lines = checkout.get("options.entry_points", kind.group, fallback="").split("\n")
    pairs = [line.split("=") for line in lines if "=" in line]
    found = {name.strip(): EntryPoint(name.strip(), value.strip(), kind.group) for name, value in pairs}
    for point in entry_points(group=kind.group):
        if found.setdefault(point.name, point).value != point.value:
            both = f"{found[point.name].value} and {point.value}"
            raise ConfigError(f"two installed packages provide a {kind.noun} {point.name!r}, {both}; uninstall one")
    return found


def load_class(kind: Kind, name: str) -> type[Any]:
    """Imports a plug-in by its name in the group of entry points, or "module:Class".

    Raises:
      ConfigError: there is no such plug-in, it cannot be imported, it is not a subclass of `kind.base`, or an option
        has no effect. For an import error the message names the plug-in's file.
    """
    noun = kind.noun
    module, _, attribute = name.partition(":")
    if not attribute:
        points = available(kind)
        if name not in points:
            known = f"{listed(points)}, or module:Class{close_match(name, points)}"
            raise ConfigError(f"unknown {noun} {name!r}; available: {known}")
        module, _, attribute = points[name].value.partition(":")
    cls = _imported(noun, name, module, attribute)
    if not (isinstance(cls, type) and issubclass(cls, kind.base)):
        base = f"{kind.base.__module__}.{kind.base.__name__}"
        raise ConfigError(f"{noun} {name!r}: {module}:{attribute} is not a subclass of {base}")
    own = getattr(cls, "name", None)
    called = f"{noun} {name!r}: {attribute}.name is {own!r}"
    if not (isinstance(own, str) and own.isidentifier()) or own in kind.reserved:
        other = f" other than {', '.join(kind.reserved)}" if kind.reserved else ""
        raise ConfigError(f"{called}; choose an identifier{other}")
    if ":" not in name and own != name:
        raise ConfigError(f"{called}; give the class and its entry point the same name")
    if lost := lost_option(cls, kind.base):
        raise ConfigError(f"{noun} {name!r}: {lost}")
    return cls


def is_of(kind: Kind, name: str) -> bool:
    """Whether "module:Class" is a plug-in of this kind. Raises ConfigError if it cannot be imported."""
    cls = _imported("class", name, *name.split(":", 1))
    return isinstance(cls, type) and issubclass(cls, kind.base)


def _imported(noun: str, name: str, module: str, attribute: str) -> Any:
    found = None
    try:
        found = importlib.import_module(module)
        return getattr(found, attribute)
    except Exception as error:  # importing a plug-in's module can raise anything
        if found is not None:
            fix = close_match(attribute, vars(found)) or "; correct it"
        else:
            fix = f"; {FIND_MODULE}" if is_missing(error, module) else ""
        raise ConfigError(f"cannot load {noun} {name!r} from {module}:{attribute}: {place(error)}{fix}") from error


def lost_option(cls: type[Any], base: type) -> str:
    """Describes the first option of a plug-in that would silently have no effect, with the fix. "" if there is none.

    A dataclass ignores a default without an annotation, and a class without the decorator ignores all its annotations.
    """
    for field in dataclasses.fields(cls):
        value = getattr(cls, field.name, field.default)
        if isinstance(value, types.MemberDescriptorType):  # the class has slots, so its defaults are in the fields only
            continue
        if value is not field.default and value != field.default:
            return _lost(next(owner for owner in cls.__mro__ if field.name in vars(owner)), field.name)
    for owner in cls.__mro__:
        if issubclass(owner, base):
            for name, annotation in inspect.get_annotations(owner).items():
                if name not in cls.__dataclass_fields__ and "ClassVar" not in str(annotation):
                    return _lost(owner, name)
    return ""


def _lost(cls: type, name: str) -> str:
    return (
        f"{cls.__name__}.{name} has no effect as an option; annotate it, as in {name}: float = 0.5, "
        f"and put @dataclasses.dataclass(frozen=True) above class {cls.__name__}"
    )


def build(kind: Kind, cls: type[Any], options: Mapping[str, Any], name: str = "") -> Any:
    """Makes a plug-in with its `options`. Messages call it by `name`, if it has another one than its class.

    Raises:
      ConfigError: an option is unknown or has the wrong type, or the plug-in itself does not accept the options.
    """
    name = name or cls.name
    types_by_name = typing.get_type_hints(cls)
    allowed = [field.name for field in dataclasses.fields(cls) if field.init]
    for option, value in options.items():
        if option not in allowed:
            known = f"{listed(allowed)}{close_match(option, allowed)}"
            raise ConfigError(f"{kind.noun} {name!r} has no option {option!r}; available: {known}")
        wanted = types_by_name[option]
        if not _fits(value, wanted):
            type_name = wanted.__name__ if isinstance(wanted, type) else wanted
            finite = " and finite" if wanted is float else ""
            raise ConfigError(f"{name}.{option} is {value!r}, but must be of type {type_name}{finite}")
    for field in dataclasses.fields(cls):
        if field.name in options:
            check_limits(f"{name}.{field.name}", options[field.name], field)
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:  # a check in `__post_init__`, or an option without a default is missing
        raise ConfigError(f"{kind.noun} {name!r} does not accept its options: {error}") from error


def expect(condition: Any, message: str) -> None:
    """Raises AssertionError unless the condition is true. For the contracts of plug-ins as tests."""
    if not condition:
        raise AssertionError(message)


def expect_plugin(
    plugin: _Base | type[_Base], base: type[_Base], options: Mapping[str, Any], reserved: Sequence[str] = ()
) -> _Base:
    """The plug-in, made with `options` if it is a class. Raises AssertionError if it breaks a rule of all plug-ins."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    expect(issubclass(cls, base), f"the class does not inherit from gunreal.{base.__name__}")
    expect(not (lost := lost_option(cls, base)), lost)
    made: Any = plugin(**options) if isinstance(plugin, type) else plugin
    name, other = getattr(made, "name", None), f" other than {', '.join(reserved)}" if reserved else ""
    usable = isinstance(name, str) and name.isidentifier() and name not in reserved
    expect(usable, f"name is {name!r}: choose an identifier{other}")
    try:
        for field in dataclasses.fields(made):
            check_limits(f"{name}.{field.name}", getattr(made, field.name), field)
    except ConfigError as error:
        raise AssertionError(str(error)) from error
    return made


def listed(names: Iterable[str]) -> str:
    """The names in order, for a message."""
    return ", ".join(sorted(names)) or "none"


@contextlib.contextmanager
def calling(what: str, kind: type[ConfigError] = ConfigError) -> Iterator[None]:
    """Makes any error in a plug-in's method, such as "task 'vr': loss()", one of this kind and one line."""
    try:
        yield
    except kind:
        raise
    except Exception as error:  # a plug-in can raise anything
        text = str(error) if isinstance(error, ConfigError) else f"{what} failed: {place(error)}"
        raise kind(text) from error


def defaults(cls: type[Any]) -> dict[str, Any]:
    """The options of a class with their defaults, or with `dataclasses.MISSING`."""
    found = {}
    for field in dataclasses.fields(cls):
        if field.init:
            made = field.default_factory
            found[field.name] = field.default if made is dataclasses.MISSING else made()
    return found


def options(plugin: Any) -> dict[str, Any]:
    """The options of a plug-in with their values, without those that a TOML file cannot hold."""
    values = {field.name: getattr(plugin, field.name) for field in dataclasses.fields(plugin) if field.init}
    return {name: value for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def place(error: BaseException) -> str:
    """The error message and the line of the plug-in in which it occurred, as one line."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}:{error.lineno})"
    none = ("<frozen importlib", str(importlib.__file__), _HERE)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(none)]
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES)] or frames  # the plug-in may be installed, too
    where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {one_line(str(error))}{where}"


def is_missing(error: Exception, module: str) -> bool:
    """Whether the module itself, and not one that it imports, is missing."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def _fits(value: Any, wanted: Any) -> bool:
    """Whether `value` has the wanted plain type, or one of a union. Other annotations are not checked."""
    choices = typing.get_args(wanted)
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in choices)
    wanted = typing.get_origin(wanted) or wanted
    if wanted is tuple and choices[1:] == (...,):
        return isinstance(value, (list, tuple)) and all(_fits(item, choices[0]) for item in value)
    if wanted is float and not is_number(value):
        return False
    if wanted not in (bool, int, float, str, list, tuple, dict, type(None)):
        return True
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else (list, tuple) if wanted is tuple else wanted)
