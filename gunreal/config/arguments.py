"""The command lines of the commands that have flags of their own instead of a run's settings."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from gunreal.config.schema import ConfigError, close_match

_LIST = "use --help to list all arguments"


class Arguments(argparse.ArgumentParser):
    """A parser that refuses a command line in one line.

    It accepts no parts of flags, and keeps the line breaks of its description.
    """

    def __init__(self, prog: str, description: str | None = None, **options: Any):
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=raw, allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reads the command line. Raises ConfigError, with a suggestion for a mistyped flag."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            hint = close_match(unknown[0].partition("=")[0], self._option_string_actions) or f"; {_LIST}"
            raise ConfigError(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError, in place of an exit that prints a block of text."""
        raise ConfigError(f"{message}; {_LIST}")
