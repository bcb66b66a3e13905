"""Warnings while a run goes on."""

from __future__ import annotations

import contextlib
import sys


def warn(text: str) -> None:
    """Prints a line to standard error, or nothing if that is closed: no warning may end a run."""
    if sys.stderr is not None:  # `print` would write to standard output instead
        with contextlib.suppress(Exception):  # its reader may be gone, or the panel that it goes through fails
            print(f"gunreal: {text}", file=sys.stderr, flush=True)
