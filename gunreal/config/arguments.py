"""The command lines of the commands that have flags of their own instead of a run's settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from gunreal.config.schema import Config, ConfigError, close_match
from gunreal.config.units import parse_count

_LIST = "use --help to list all arguments"


class Arguments(argparse.ArgumentParser):
    """A parser that refuses a command line in one line.

    It accepts no parts of flags, and keeps the line breaks of its description.
    """

    def __init__(self, prog: str, description: str | None = None, **options: Any):
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=raw, allow_abbrev=False, **options)

    def add_run(self, policy: bool = False) -> None:
        """Adds the run, its checkpoint and the folder of runs, and the choice of actions if `policy` is set."""
        add = self.add_argument
        add("run", metavar="RUN", help="a run's folder, or its name")
        which = "checkpoint to load: newest, best, a step, or a path (default: newest)"
        add("--checkpoint", default="newest", metavar="NAME", help=which)
        add("--logdir", default=Config.logdir, help=f"folder of runs, used if RUN is a name (default: {Config.logdir})")
        if policy:
            how = "actions: drawn from the policy, or the most probable ones (default: sample)"
            add("--policy", choices=("sample", "argmax"), default="sample", help=how)

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


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is an integer of at least this size, as in 1.5M."""

    def integer(text: str) -> int:
        try:
            value = parse_count(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is below {least}")
        return value

    return integer
