"""The command lines of the commands that have flags of their own instead of a run's settings."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from gunreal.config.schema import ConfigError


class Arguments(argparse.ArgumentParser):
    """A parser that refuses a command line in one line.

    It accepts no parts of flags, and keeps the line breaks of its description.
    """

    def __init__(self, prog: str, description: str | None = None, **options: Any):
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=raw, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError, in place of an exit that prints a block of text."""
        raise ConfigError(f"{message}; use --help to list all arguments")
