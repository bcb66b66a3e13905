"""Limits the size of the C library's heap in processes with many threads."""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8  # from malloc.h


def share_heap() -> None:
    """Makes all threads share two heaps. A heap per thread would never give back the memory it once needed."""
    with contextlib.suppress(AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
