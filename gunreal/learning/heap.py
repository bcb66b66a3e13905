"""The C library's heap, kept small where many threads allocate."""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8  # of malloc.h


def share_heap() -> None:
    """Lets all threads take memory from the same two heaps: of its own, each would keep what it once needed."""
    with contextlib.suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
