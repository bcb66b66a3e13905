"""The command line: a flag for every field of the configuration, plus the few that are about files.

The flags live in a `FlagValues` of their own: importing this library adds nothing to a program's global absl flags.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from gunreal.config import folders
from gunreal.config.checks import check
from gunreal.config.schema import FIELDS, TYPES, Config, ConfigError, close_match, load, typed
from gunreal.config.units import parse_count, parse_size

_TABLES = ("env_args", "task")
_OTHERS = {
    "config": "TOML file whose values replace the defaults",
    "resume": "name or folder of a run to go on with",
    "task_weight": "weights of tasks, pc=0.05,vr=1; the same as --task pc.weight=0.05,vr.weight=1",
    "help": "show this and exit",
}


class Extras(NamedTuple):
    """What the command line says beside the configuration.

    Attributes:
      resume: folder of the run to go on with, or None.
      given: the fields that the TOML file or a flag set, by name.
    """

    resume: Path | None
    given: dict[str, Any]


def from_flags(argv: Sequence[str]) -> tuple[Config, Extras]:
    """The checked configuration: defaults < `--config FILE.toml` < flags; with `--resume`, the saved run's < both.

    Args:
      argv: the command line with the program's name first, as `sys.argv`.

    Raises:
      ConfigError: one line that names the fix; the caller prints it and exits with 2.
      SystemExit: `--help` was asked for and printed.
    """
    found = _parse(argv)
    if found.pop("help", False):
        print(usage(Path(argv[0]).name))
        raise SystemExit(0)
    resume, path = found.pop("resume", None), found.pop("config", None)
    for name, weight in found.pop("task_weight", {}).items():
        found.setdefault("task", {}).setdefault(name, {})["weight"] = weight
    given = _merge(load(path) if path is not None else {}, found)
    if resume is not None:
        run_dir = folders.find(resume, given.pop("logdir", Config.logdir))
        return folders.resume_config(run_dir, given), Extras(run_dir, given)
    config = Config(**given)
    check(config)
    return config, Extras(None, given)


def usage(program: str) -> str:
    """The help text: every flag with its meaning and default."""
    lines = [f"usage: {program} [--flag value] ...", ""]
    for name, help in _OTHERS.items():
        lines += _described(name, help)
    for name, field in FIELDS.items():
        default = "" if field.default in (dataclasses.MISSING, "", ()) else f" (default {_shown(field.default)})"
        choices = f": {', '.join(field.metadata['choices'])}" if "choices" in field.metadata else ""
        lines += _described(
            name, field.metadata["help"] + (choices if ":" not in field.metadata["help"] else "") + default
        )
    return "\n".join(lines)


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _described(name: str, help: str) -> list[str]:
    return textwrap.wrap(f"--{name:<20} {help}", 110, initial_indent="  ", subsequent_indent=" " * 25)


class _Parser(flags.ArgumentParser):
    """Turns a flag's text into its value with `convert`, whose ValueError becomes absl's error for the flag."""

    def __init__(self, convert: Callable[[str], Any]):
        super().__init__()
        self.convert = convert

    def parse(self, argument: str) -> Any:
        """The value."""
        return self.convert(argument)


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, field in FIELDS.items():
        help, kind = field.metadata["help"], TYPES[name]
        if kind is bool:
            flags.DEFINE_boolean(name, None, help, flag_values=values)
        elif name in _TABLES:
            _define_pairs(name, help, values)
        else:
            flags.DEFINE(_Parser(_converter(name, kind)), name, None, help, flag_values=values)
    for name, help in _OTHERS.items():
        if name == "help":
            flags.DEFINE_boolean(name, None, help, flag_values=values)
        elif name == "task_weight":
            _define_pairs(name, help, values)
        else:
            flags.DEFINE_string(name, None, help, flag_values=values)
    values.set_gnu_getopt(True)  # so that what is no flag is reported, wherever it stands
    return values


def _define_pairs(name: str, help: str, values: flags.FlagValues) -> None:
    parser = _Parser(parse_pairs)
    flags.DEFINE_multi(parser, flags.ArgumentSerializer(), name, None, help, flag_values=values)


def _converter(name: str, kind: Any) -> Callable[[str], Any]:
    if name == "tasks":
        return lambda text: tuple(task.strip() for task in text.split(",")) if text.strip() else ()
    if name == "memory_limit":
        return parse_size
    converters: dict[Any, Callable[[str], Any]] = {int: parse_count, float: _parse_float, str: str}
    return converters[kind]


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def read(values: flags.FlagValues, argv: Sequence[str], known: Sequence[str]) -> list[str]:
    """Sets `values` from a command line and returns the words that are no flags.

    Raises:
      ConfigError: absl's complaint in one line; of an unknown flag, with the closest of the `known` ones.
    """
    try:
        return values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        hint = close_match(error.flagname, known) or "; --help lists all flags"
        raise ConfigError(f"unknown flag --{error.flagname}{hint}") from error
    except flags.Error as error:
        if "Non-boolean" in str(error):
            raise ConfigError(f"{str(error).split(': ')[0]}: write true or false, or no value at all") from error
        raise ConfigError(" ".join(str(error).split())) from error


def _parse(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that are there, by name, with repeated tables merged."""
    values = _define()
    rest = read(values, argv, [*FIELDS, *_OTHERS])
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; write --flag value")
    found = {name: values[name].value for name in [*FIELDS, *_OTHERS] if values[name].present}
    for name in (*_TABLES, "task_weight"):
        if name in found:
            merged: dict[str, Any] = {}
            for pairs in found[name] or ():
                _check_flat(name, pairs)
                merged |= pairs
            found[name] = merged if name != "task" else _nested(merged)
    return {name: typed(name, value) if name in FIELDS else value for name, value in found.items()}


def parse_pairs(text: str) -> dict[str, Any]:
    """`key=value,key=value` with values as in TOML; a value that isn't, is a string without the quotes.

    Raises ValueError where a `=` is missing, or a value looks like Python's True, False or None.
    """
    found: dict[str, Any] = {}
    for pair in re.split(r",(?=\s*[\w.:-]+\s*=)", text):  # commas inside lists and strings don't end a pair
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise ValueError(f"{pair!r} is no key=value")
        if value in ("True", "False", "None"):
            raise ValueError(f"{pair!r}: write true or false; a value of None can't be given")
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found


def _check_flat(name: str, pairs: dict[str, Any]) -> None:
    wrong = next((key for key in pairs if (name == "task") != ("." in key)), None)
    if wrong is not None:
        expected = {"task": "pc.weight=0.05", "task_weight": "pc=0.05", "env_args": "frameskip=4"}[name]
        raise ConfigError(f"--{name} {wrong}={pairs[wrong]}: write it as in --{name} {expected}")


def _nested(pairs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for key, value in pairs.items():
        task, _, option = key.partition(".")
        tables.setdefault(task, {})[option] = value
    return tables


def _merge(file: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The file's values with the flags' over them. Tables are merged by key; options of tasks that the file names and
    the flags leave out go with their task."""
    merged = file | found
    if "env_args" in file:
        merged["env_args"] = file["env_args"] | found.get("env_args", {})
    if "task" in file:
        dropped = set(file.get("tasks", ())) - set(merged.get("tasks", ()))
        kept = {task: options for task, options in file["task"].items() if task not in dropped}
        asked = found.get("task", {})
        merged["task"] = {task: kept.get(task, {}) | asked.get(task, {}) for task in [*kept, *asked]}
    return merged
