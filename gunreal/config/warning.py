"""Lines on standard error: warnings, and why a command refuses its input."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gunreal.config.values import one_line

PREFIX = "gunreal: "  # start of each line
_PATIENCE = 10.0  # seconds
_MOST = 100  # different lines of `warn_once`. The numbers in a warning may make it another one at every step
_said: set[str] = set()


def warn(text: str) -> None:
    """Prints a line to standard error, or nothing if that is closed: no warning may end a run."""
    if sys.stderr is not None:  # `print` would write to standard output instead
        with contextlib.suppress(Exception):  # its reader may be gone, or the panel that it goes through fails
            print(f"{PREFIX}{text}", file=sys.stderr, flush=True)


def warn_once(text: str) -> None:
    """Prints a line that came from another process as `warn` does, unless this process has already printed it so."""
    if text not in _said and len(_said) < _MOST:
        _said.add(text)
        warn(text)


def catch_warnings(tell: Callable[[str], object]) -> None:
    """Gives the warnings of Python's `warnings`, and those of `logging` without a handler, to `tell`, one line each."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        tell(f"{one_line(str(message))} ({category.__name__}, {filename}:{lineno})")

    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: tell(one_line(record.getMessage()))  # type: ignore[assignment,method-assign]
    warnings.showwarning, logging.lastResort = show, handler


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says what the program is waiting for if the block, which only the user can end, takes long."""
    timer = threading.Timer(_PATIENCE, warn, (f"still waiting for {what}; if it hangs, press Ctrl-C",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drops what native code prints to standard error."""
    if sys.stderr is None:  # it is closed; descriptor 2 does not exist, or belongs to another file
        yield
        return
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
