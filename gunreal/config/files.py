"""A configuration as a TOML file."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gunreal.config import units
from gunreal.config.schema import FIELDS, Config, ConfigError, close_match, typed


def load(path: str | Path) -> dict[str, Any]:
    """Reads the fields set by a TOML file. `Config(**load(path))` is the complete configuration.

    Returns:
      The values by field name, converted to the types of the fields.

    Raises:
      ConfigError: the file cannot be read, is not valid TOML, has an unknown key or has a value of the wrong type.
    """
    return fields(parsed(path), str(path))


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
      found: the table.
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
    try:
        sizes = {name: units.parse_size(found[name]) for name in ("memory_limit",) if isinstance(found.get(name), str)}
        return {name: typed(name, value) for name, value in {**found, **sizes}.items()}
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def save(config: Config, path: str | Path) -> None:
    """Writes all fields as TOML, so that `Config(**load(path)) == config`. Raises OSError."""
    write(dataclasses.asdict(config), path)


def write(values: Mapping[str, Any], path: str | Path) -> None:
    """Writes fields as TOML. The file is replaced as a whole, or not at all. Raises OSError."""
    path = Path(path)
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(tomli_w.dumps(values).encode())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
