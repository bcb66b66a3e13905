"""What the tools' commands have in common."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from gunreal.config import flags
from gunreal.config.schema import Config, ConfigError


class Parser(argparse.ArgumentParser):
    """Bad flags are a ConfigError, as all bad input; the description is shown as it is written."""

    def __init__(self, program: str, description: str | None, **options: Any):
        super().__init__(
            program,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )

    def parse_with_training_flags(self, argv: Sequence[str]) -> tuple[argparse.Namespace, Config, flags.Extras]:
        """The tool's own options, and what `flags.from_flags` makes of all others. Raises ConfigError."""
        self.epilog = "Any other flag is one of python -m gunreal.train."
        options, rest = self.parse_known_args(argv)
        return options, *flags.from_flags([self.prog, *rest])

    def error(self, message: str) -> NoReturn:
        """Raises it."""
        raise ConfigError(message)


def check_positive(name: str, value: float) -> None:
    """Raises ConfigError unless an option's value is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"--{name} is {value:g}, but has to be above 0")


def say(text: str) -> None:
    """Prints a line with the time."""
    print(f"{time.strftime('%H:%M')} {text}", flush=True)


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Has signals handled by `handler` until its end, then as before."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """This process and those that it starts use so many cores.

    Raises:
      ConfigError: there are not so many.
    """
    allowed = os.sched_getaffinity(0)
    if not 0 < count <= len(allowed):
        raise ConfigError(f"cores is {count}, but this process may use 1 to {len(allowed)}; correct --cores")
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
