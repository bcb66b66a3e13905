"""Packages that may be installed."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from gunreal.config.schema import ConfigError


def is_installed(package: str) -> bool:
    """Whether a package is installed. It is not imported. A plain folder of the same name does not count.

    Python takes such a folder for a namespace package. One is in many working directories: `wandb`, which that package
    itself writes.
    """
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None  # a namespace package may have a loader, but has no origin


def package(name: str, missing: str) -> ModuleType:
    """Imports a package. Raises ConfigError with the message `missing` if it is not installed."""
    if not is_installed(name):
        raise ConfigError(missing)
    return importlib.import_module(name)
