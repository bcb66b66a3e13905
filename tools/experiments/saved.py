"""Measurements in a JSON file. It is replaced as a whole or not at all, so that an interruption does not damage it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from measuring import machine

from gunreal.config.schema import ConfigError

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T:
    """The content of a file, a list or an object.

    Raises:
      ConfigError: the file is damaged.
      OSError: it can't be read.
    """
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}; remove it") from error
    if not isinstance(found, kind):
        raise ConfigError(f"{path} is damaged: it is a {type(found).__name__}, not a {kind.__name__}; remove it")
    return found


def save(path: Path, content: Any) -> None:
    """Writes a file. Raises OSError."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)


def here() -> str:
    """The processor and the GPUs of this machine."""
    about = machine.machine()
    return " and ".join([about["processor"], *about["gpus"]])


def check(path: Path, entries: Iterable[Mapping[str, Any]], **about: Any) -> None:
    """Raises ConfigError unless all entries of a file were measured like this, such as with `seconds=3.0`."""
    for entry in entries:
        for name, value in about.items():
            if (there := entry.get(name)) != value:
                raise ConfigError(
                    f"{path} was measured with {name} {there!r}, not {value!r}; choose another folder with --logdir"
                )
