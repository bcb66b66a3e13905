"""Lines on standard error: warnings, and why a command refuses its input."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_PATIENCE = 10.0  # seconds


def warn(text: str) -> None:
    """Prints a line to standard error, or nothing if that is closed: no warning may end a run."""
    if sys.stderr is not None:  # `print` would write to standard output instead
        with contextlib.suppress(Exception):  # its reader may be gone, or the panel that it goes through fails
            print(f"gunreal: {text}", file=sys.stderr, flush=True)


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
