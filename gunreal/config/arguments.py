"""The command lines of commands that take runs and files, and few flags."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from gunreal.config.schema import ConfigError


class Arguments(argparse.ArgumentParser):
    """A parser that refuses a command line in one line, and accepts no parts of flags."""

    def __init__(self, program: str, **options: Any):
        super().__init__(program, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError, in place of an exit that prints a block of text."""
        raise ConfigError(f"{message}; use --help to list all arguments")
