"""The command line: one flag for every configuration field, and a few more for files.

The flags live in their own `FlagValues`. Importing this library adds nothing to a program's global absl flags.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import re
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from gunreal.config import folders, usage
from gunreal.config.checks import OF_IMAGES, check, without_effect
from gunreal.config.fields import AUTO
from gunreal.config.files import File
from gunreal.config.files import read as read_file
from gunreal.config.schema import AUTOMATIC, FIELDS, TYPES, Config, ConfigError, close_match, typed
from gunreal.config.units import parse_count, parse_size

# Tables by the setting to which they belong.
_ARGUMENTS = {"env": "env_args", "network": "network_args", "objective": "objective_args"}
_TABLES = (*_ARGUMENTS.values(), "task")
_EXAMPLES = {"env_args": "frameskip=4", "task": "pc.weight=0.05", "network_args": "width=2", "task_weight": "pc=0.05"}
_EXAMPLES |= {"objective_args": "epochs=4"}
_OTHERS = {**usage.FILES, "task_weight": usage.TASK_WEIGHT, **usage.HELP}


class Extras(NamedTuple):
    """Command-line values that are not part of the configuration.

    Attributes:
      resume: folder of the run to continue, or None.
      given: fields set by the TOML file or by a flag, by name.
      chosen: names of those that the user has chosen: without those of a file that a run has saved, because it sets
        all fields, and without those of another file that may have no effect.
    """

    resume: Path | None
    given: dict[str, Any]
    chosen: Collection[str]


def from_flags(argv: Sequence[str]) -> tuple[Config, Extras]:
    """Reads and checks the configuration from a command line.

    Flags override `--config FILE.toml`, which overrides the defaults. With `--resume`, both override the saved
    configuration of the run.

    Args:
      argv: the command line. Its first word is the command as it was called, such as "gunreal train".

    Returns:
      The configuration, and the command-line values that are not part of it.

    Raises:
      ConfigError: the command line is invalid. The message is one line that names the fix. The caller prints it and
        exits with code 2.
      SystemExit: `--help` or `--helpfull` was given. The help has been printed.
    """
    found = _parse(argv)
    full, help = found.pop("helpfull", False), found.pop("help", False)
    if full or help:
        print(_help(argv[0], full, "resume" in found))
        raise SystemExit(0)
    resume, path = found.pop("resume", None), found.pop("config", None)
    file = read_file(path) if path is not None else File({}, "")
    given = merge(file.values, _with_weights(found))
    if resume is not None:
        run_dir = folders.find(resume, given.pop("logdir", Config.logdir))
        return folders.resume_config(run_dir, given), Extras(run_dir, given, ())
    config = Config(**given)
    chosen = found.keys() if file.version else given.keys() - _lost(config, file, found)
    check(config, chosen)
    return config, Extras(None, given, chosen)


def _lost(config: Config, file: File, found: Collection[str]) -> set[str]:
    """The fields of a file that have lost their effect to a flag, such as `--tasks ''`, and those of images.

    A file, such as that of a sweep, may be for several environments.
    """
    return (without_effect(config) - without_effect(Config(**file.values)) | OF_IMAGES) - set(found)


def settings(argv: Sequence[str]) -> dict[str, Any]:
    """Reads the fields that flags set. Raises ConfigError as `from_flags`, and for flags that are not fields."""
    found = _parse(argv)
    wrong = next((name for name in _OTHERS if name in found and name != "task_weight"), None)
    if wrong:
        raise ConfigError(f"--{wrong} cannot be used here; leave it out")
    return _with_weights(found)


def _with_weights(found: dict[str, Any]) -> dict[str, Any]:
    """Writes `--task_weight pc=0.05` as the option of the task that it is."""
    for name, weight in found.pop("task_weight", {}).items():
        found.setdefault("task", {}).setdefault(name, {})["weight"] = weight
    return found


def _help(program: str, full: bool, resumes: bool) -> str:
    if resumes:
        return usage.text(program, folders.CHANGEABLE | {"logdir", "task_weight", "help"}, resumes)
    return usage.text(program, None if full else usage.COMMON)


class _Parser(flags.ArgumentParser):
    """Converts a flag's text to its value with `convert`. absl reports a ValueError from `convert` as a flag error."""

    def __init__(self, convert: Callable[[str], Any]):
        super().__init__()
        self.convert = convert

    def parse(self, argument: str) -> Any:
        """The value of the text."""
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
        if name in usage.HELP:
            flags.DEFINE_boolean(name, None, help, flag_values=values)
        elif name == "task_weight":
            _define_pairs(name, help, values)
        else:
            flags.DEFINE_string(name, None, help, flag_values=values)
    values.set_gnu_getopt(True)  # find arguments that are not flags at any position
    return values


def _define_pairs(name: str, help: str, values: flags.FlagValues) -> None:
    parser = _Parser(functools.partial(parse_pairs, example=_EXAMPLES[name]))
    flags.DEFINE_multi(parser, flags.ArgumentSerializer(), name, None, help, flag_values=values)


def _converter(name: str, kind: Any) -> Callable[[str], Any]:
    if name == "tasks":
        return lambda text: tuple(task.strip() for task in text.split(",")) if text.strip() else ()
    converters: dict[Any, Callable[[str], Any]] = {int: parse_count, float: _parse_float, str: str}
    convert = parse_size if name == "memory_limit" else converters[kind]
    return (lambda text: AUTO if text == AUTO else convert(text)) if name in AUTOMATIC else convert


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _parse(argv: Sequence[str]) -> dict[str, Any]:
    """The values of the given flags, by name. Repeated tables are merged."""
    values = _define()
    try:
        rest = values(["--help" if word == "-h" else word for word in argv])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = close_match(f"--{error.flagname}", [f"--{name}" for name in (*FIELDS, *_OTHERS)])
        raise ConfigError(f"unknown flag --{error.flagname}{hint or '; use --helpfull to list all flags'}") from error
    except flags.Error as error:
        boolean = "Non-boolean" in str(error)
        message = f"{str(error).split(': ')[0]}: give true or false, or no value" if boolean else str(error)
        raise ConfigError(message) from error
    except ValueError as error:  # absl's for `--noserial=true`
        raise ConfigError(f"{error}; leave out the value") from error
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; {_fix(rest[0], argv, values)}")
    found = {name: values[name].value for name in [*FIELDS, *_OTHERS] if values[name].present}
    for name in (*_TABLES, "task_weight"):
        if name in found:
            merged: dict[str, Any] = {}
            for pairs in found[name] or ():
                _check_flat(name, pairs)
                merged |= pairs
            found[name] = merged if name != "task" else _nested(merged)
    return {name: typed(name, value) if name in FIELDS else value for name, value in found.items()}


def _fix(word: str, argv: Sequence[str], values: flags.FlagValues) -> str:
    """How to write `word`, which is not a flag."""
    for before in (first for first, second in itertools.pairwise(argv[1:]) if second == word):
        name = before.lstrip("-")
        if before != name and name in values and values[name].boolean and word.lower() in ("true", "false"):
            return f"write {'--' if word.lower() == 'true' else '--no'}{name} or --{name}={word.lower()}"
        if before.endswith(","):
            return "write no space after the comma"
    if (tasks := values["tasks"].value) and values["tasks"].present:
        return f"if it is a task, write --tasks {','.join([*tasks, word])}"
    return "give values as --flag value"


def parse_pairs(text: str, example: str = "frameskip=4") -> dict[str, Any]:
    """Parses `key=value,key=value`. Values are TOML; a value that is not valid TOML is read as a string.

    Raises:
      ValueError: a `=` is missing, or a value is Python's True, False or None.
    """
    found: dict[str, Any] = {}
    rest: str | None = text
    while rest is not None:
        key, equals, rest = (part.strip() for part in rest.partition("="))
        if not equals or not key:
            raise ValueError(f"{key!r} is not of the form key=value, as in {example}")
        found[key], rest = _value(key, rest)
    return found


def _value(key: str, text: str) -> tuple[Any, str | None]:
    """The value at the beginning of `text`, and the text after its comma, or None at the end."""
    ends = [match.start() for match in re.finditer(r",(?=\s*[\w.:-]+\s*=)", text)] + [len(text)]
    values = [text[:end].strip() for end in ends]
    if values[0] in ("True", "False", "None"):
        raise ValueError(f"'{key}={values[0]}': write true or false; None is not supported")
    for end, value in zip(ends, values, strict=True):
        with contextlib.suppress(ValueError):  # a comma inside a table, a list or a string
            (found,) = tomllib.loads(f"values = [{value}]")["values"]
            if not isinstance(found, datetime.date | datetime.time):
                return found, text[end + 1 :] if end < len(text) else None
    return values[0], text[ends[0] + 1 :] if ends[0] < len(text) else None


def _check_flat(name: str, pairs: dict[str, Any]) -> None:
    wrong = next((key for key in pairs if (name == "task") != ("." in key)), None)
    if wrong is not None:
        raise ConfigError(
            f"--{name} {wrong}={pairs[wrong]} has the wrong form; write it as in --{name} {_EXAMPLES[name]}"
        )


def _nested(pairs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for key, value in pairs.items():
        task, _, option = key.partition(".")
        tables.setdefault(task, {})[option] = value
    return tables


def merge(file: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, overridden by those of flags, or of another file. Tables are merged by key.

    If the flags name another environment, network or objective than the file, the file's arguments for it are dropped.
    A task that the file names and the flags leave out is dropped together with its options. The options of a task
    written as module:Class stay if the flags name such a task, too, since the names of both are unknown until they are
    loaded.
    """
    replaced = {_ARGUMENTS.get(name) for name, value in file.items() if found.get(name, value) != value}
    file = {name: value for name, value in file.items() if name not in replaced}
    merged = file | found
    for table in _ARGUMENTS.values():
        if table in file:
            merged[table] = file[table] | found.get(table, {})
    if "task" in file:
        tasks = merged.get("tasks", ())
        now, before = ({task.partition("=")[0] for task in names} for names in (tasks, file.get("tasks", ())))
        dropped = before - now
        if ":" in "".join(dropped) and ":" not in "".join(now):
            dropped |= file["task"].keys() - now  # with the names of the dropped classes, which are unknown here
        kept = {task: options for task, options in file["task"].items() if task not in dropped}
        asked = found.get("task", {})
        merged["task"] = {task: kept.get(task, {}) | asked.get(task, {}) for task in [*kept, *asked]}
    return merged
