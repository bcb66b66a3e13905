"""Checks of the options of the library's own environments, which `--env_args` sets."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from gunreal.config.schema import ConfigError
from gunreal.config.values import is_number


def check(name: str, value: Any, allowed: range) -> None:
    """Raises ConfigError unless the value is a whole number and allowed."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)  # True is an Integral
    if not is_whole or value not in allowed:  # 9.0 is in range(10) but cannot be an index
        odd = "odd and " if allowed.step == 2 else ""
        raise ConfigError(f"{name} is {value!r}, but must be {odd}{allowed[0]} to {allowed[-1]}")


def check_share(name: str, value: Any) -> None:
    """Raises ConfigError unless the value is a number from 0 to 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ConfigError(f"{name} is {value!r}, but must be 0 to 1")
