"""Command-line parsing, progress messages, signals and CPU cores, for all commands."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gunreal.config import flags
from gunreal.config.arguments import Arguments
from gunreal.config.checks import only_in_others, without_effect
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.config.units import parse_count

_GPUS = "CUDA_VISIBLE_DEVICES"


class Parser(Arguments):
    """A parser that also accepts the flags of a training."""

    def parse_with_training_flags(self, argv: Sequence[str]) -> tuple[argparse.Namespace, Config, flags.Extras]:
        """Parses the command's own options, and all other flags with `flags.from_flags`. Raises ConfigError."""
        self.epilog = "All flags of gunreal train are accepted, too."
        options, rest = self.parse_known_args(argv)
        return options, *flags.from_flags([self.prog, *rest])


def check_positive(name: str, value: float) -> None:
    """Raises ConfigError unless the value of an option is finite and positive."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"--{name} is {value:g}, but must be positive")


def positive_count(name: str, text: str) -> int:
    """The value of an option such as `1.5M`. Raises ConfigError unless it is a positive whole number."""
    try:
        value = parse_count(text)
    except ValueError as error:
        raise ConfigError(f"--{name}: {error}") from error
    check_positive(name, value)
    return value


def check_writable(*files: Path | None) -> None:
    """Raises ConfigError if a file can't be written. None stands for a file that is not wanted."""
    for path in filter(None, files):
        if (
            path.is_dir()
            or not os.access(path.resolve().parent, os.W_OK)
            or (path.exists() and not os.access(path, os.W_OK))
        ):
            raise ConfigError(f"can't write {path}; choose a file in an existing, writable folder")


def check_processes(config: Config) -> None:
    """Raises ConfigError unless a run has its agents and its learner in processes of this machine."""
    if config.runner != "parallel":
        raise ConfigError("only the parallel runner can be measured here; leave out --runner")


def with_effect(configs: Mapping[str, Config]) -> dict[str, Config]:
    """Returns configurations in which a setting that has an effect in others only has its default."""
    lost = only_in_others({name: without_effect(config) for name, config in configs.items()})
    return {
        name: dataclasses.replace(config, **{field: FIELDS[field].default for field in lost[name]})
        for name, config in configs.items()
    }


def reason(error: Exception) -> str:
    """The last line of an error, which is the reason if it holds the traceback of an agent."""
    return str(error).strip().rpartition("\n")[2]


def say(text: str) -> None:
    """Prints a line that starts with the time of day."""
    print(f"{time.strftime('%H:%M')} {text}", flush=True)


def stopped() -> int:
    """Tells how to continue a program that a signal has stopped, and returns its exit code."""
    say(f"stopped; to continue, run: {shlex.join(['python', *sys.argv])}")
    return 128 + signal.SIGINT


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Installs a signal handler, and restores the previous handlers at the end."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def without_gpus() -> Iterator[None]:
    """Hides all GPUs from this process, and from the processes that it starts."""
    before = os.environ.get(_GPUS)
    os.environ[_GPUS] = ""
    try:
        yield
    finally:
        del os.environ[_GPUS]
        if before is not None:
            os.environ[_GPUS] = before


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Restricts this process, and the processes that it starts, to `count` cores.

    Raises:
      ConfigError: the process may not use that many cores.
    """
    allowed = os.sched_getaffinity(0)
    if not 0 < count <= len(allowed):
        raise ConfigError(f"--cores is {count}, but must be between 1 and {len(allowed)}, the number of usable cores")
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
