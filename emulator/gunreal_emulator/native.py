"""What all objects with memory of the C++ library have in common: one thread at a time, checked states, no pickling."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

import numpy as np

KIND = 8  # bytes at the start of a saved state, which depend on the game, its mode and the version of the emulator
TAG = KIND + 4  # with the checksum of the rest

P = ParamSpec("P")
R = TypeVar("R")


class _Locked(Protocol):
    _lock: Any


S = TypeVar("S", bound=_Locked)


class Native:
    """An object that can't be pickled, because its consoles are in the memory of the C++ library."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raises TypeError."""
        why = "its consoles are in the memory of this process; create one where it is used"
        raise TypeError(f"a {type(self).__name__} can't be pickled or copied, because {why}")


def alone(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Lets one thread at a time call the methods of an object with the lock `_lock`. The others get a RuntimeError."""

    @functools.wraps(method)
    def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(f"another thread is using this {type(self).__name__}; give each thread its own")
        try:
            return method(self, *args, **kwargs)
        finally:
            self._lock.release()

    return guarded


def seal(kind: bytes, content: bytes) -> bytes:
    """Returns a saved state, whose content the emulator will trust: its kind and its checksum come first."""
    return kind + zlib.crc32(content).to_bytes(4, "little") + content


def unseal(state: bytes, kind: bytes, size: int) -> np.ndarray:
    """Returns the content of a saved state, uint8 `[size]`. Raises ValueError unless `seal` made it of this kind."""
    if not isinstance(state, bytes) or len(state) != TAG + size or state[:KIND] != kind:
        raise ValueError(
            "a state is of another game, mode, difficulty or version of the emulator; use one of this game"
        )
    if state != seal(kind, state[TAG:]):
        raise ValueError("a state is damaged; use the bytes that were returned when it was saved")
    return np.frombuffer(state, np.uint8)[TAG:]


def check_whole(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError unless a value is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}, but must be a whole number from {low} to {high}")
