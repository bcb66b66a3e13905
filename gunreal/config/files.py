"""A configuration as a TOML file."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from gunreal.config import units
from gunreal.config.fields import AUTO
from gunreal.config.schema import FIELDS, Config, ConfigError, close_match, typed
from gunreal.config.version import VERSION

_VERSION, _USED = "version", "used"
_HEAD = f"""\
# The settings of a run, saved by gunreal.
# Each start chooses the value of a setting that is "{AUTO}". [{_USED}] shows what the last start has chosen.
"""


class File(NamedTuple):
    """A TOML file with settings.

    Attributes:
      values: the fields that it sets, converted to their types.
      version: version of gunreal that has saved it. Empty for a file that somebody wrote.
    """

    values: dict[str, Any]
    version: str


def load(path: str | Path) -> dict[str, Any]:
    """The fields set by a TOML file. `Config(**load(path))` is the complete configuration. Raises as `read`."""
    return read(path).values


def read(path: str | Path) -> File:
    """Reads a TOML file.

    Raises:
      ConfigError: the file cannot be read, is not valid TOML, is a sweep, has an unknown key or has a value of
        the wrong type.
    """
    found = parsed(path)
    version = found.pop(_VERSION, "")
    found.pop(_USED, None)
    if "settings" in found:
        raise ConfigError(f"{path} is a sweep; run gunreal sweep {path}")
    return File(fields(found, str(path)), str(version))


def parsed(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError if it cannot be read or is not valid TOML."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def fields(found: Mapping[str, Any], where: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """Converts the values of a TOML table to the types of the fields that its keys name.

    Args:
      where: its file and place, for the error message.
      others: keys that the same table may have, for the suggestion after a mistyped one.

    Raises:
      ConfigError: a key is unknown, or a value has the wrong type.
    """
    for name in found:
        if name == "task_weight":
            raise ConfigError(f"{where}: task_weight is a flag only; write weight = 0.05 in a table [task.pc]")
        if name not in FIELDS:
            raise ConfigError(f"{where}: unknown key {name}{close_match(name, [*FIELDS, *others]) or '; leave it out'}")
    memory = found.get("memory_limit", AUTO)
    try:
        sizes = {"memory_limit": units.parse_size(memory)} if isinstance(memory, str) and memory != AUTO else {}
        return {name: typed(name, value) for name, value in {**found, **sizes}.items()}
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def load_saved(path: str | Path) -> Config:
    """The configuration that a run has saved.

    Raises:
      ConfigError: as `read`, or another version of gunreal has saved it, and its settings are not those of this one.
    """
    found = parsed(path)
    version, names = found.get(_VERSION), found.keys() - {_VERSION, _USED}
    if version is None or (version != VERSION and names != FIELDS.keys()):
        made_by = f"gunreal {version}" if version else "an older version of gunreal"
        raise ConfigError(f"{path} was made by {made_by}; use that version for this run, or start a new run")
    if missing := [name for name in FIELDS if name not in names]:
        raise ConfigError(f"{path} lacks {missing[0]}; add it, or start a new run")
    return Config(**load(path))


def save(config: Config, path: str | Path, used: Mapping[str, Any] | None = None) -> None:
    """Writes all fields and the version of gunreal as TOML, so that `load_saved(path) == config`. Raises OSError.

    The file is replaced as a whole, or not at all.

    Args:
      config: the configuration.
      path: the file.
      used: values of settings that are "auto", for people who read the file.
    """
    table = {_VERSION: VERSION, **dataclasses.asdict(config), **({_USED: dict(used)} if used else {})}
    write(table, path, _HEAD)


def write(values: Mapping[str, Any], path: str | Path, head: str = "") -> None:
    """Writes fields as TOML after a comment, as `replace` does."""
    replace(Path(path), head + tomli_w.dumps(values))


def replace(path: Path, text: str) -> None:
    """Writes a file as a whole, or not at all. Raises OSError."""
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(text.encode())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
