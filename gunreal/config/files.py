"""A configuration as a TOML file."""

from __future__ import annotations

import dataclasses
import os
import tomllib
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
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for name in found:
        if name == "task_weight":
            raise ConfigError(f"{path}: task_weight is a flag only; write weight = 0.05 in a table [task.pc]")
        if name not in FIELDS:
            raise ConfigError(f"{path}: unknown key {name}{close_match(name, FIELDS) or '; leave it out'}")
    try:
        if isinstance(found.get("memory_limit"), str):
            found["memory_limit"] = units.parse_size(found["memory_limit"])
        return {name: typed(name, value) for name, value in found.items()}
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def save(config: Config, path: str | Path) -> None:
    """Writes all fields as TOML, so that `Config(**load(path)) == config`. Raises OSError.

    The file is replaced as a whole, or not at all.
    """
    path = Path(path)
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(tomli_w.dumps(dataclasses.asdict(config)).encode())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
