"""Handling of the signals that stop a run: SIGINT, SIGTERM, and SIGHUP, which is sent when a terminal is closed."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_AT_ONCE = 1.0  # seconds in which signals of a kind are one. `timeout` sends one to the process and one to its group


class Interrupted(KeyboardInterrupt):
    """A signal arrived before there was a system to stop."""

    def __init__(self, number: signal.Signals):
        super().__init__(number.name)
        self.number = number


class Interruption:
    """The effect of a signal. It raises `Interrupted` until `stops` has been called, then it stops the system."""

    def __init__(self) -> None:
        self._number: signal.Signals | None = None
        self._stop: Callable[[str], None] | None = None

    def stops(self, stop: Callable[[str], None]) -> None:
        """Makes signals call `stop` with their name, including one whose `Interrupted` has been caught before."""
        self._stop = stop
        if self._number:
            stop(self._number.name)

    def take(self, number: signal.Signals) -> None:
        """Handles a signal."""
        self._number = number
        if self._stop is None:
            raise Interrupted(number)
        self._stop(number.name)


@contextlib.contextmanager
def handled() -> Iterator[Interruption]:
    """Handles the signals until the end of the block.

    Python handles signals in the main thread only, so other threads handle none. A second SIGINT or SIGTERM has the
    effect that it had before the block, unless it comes together with the first. Further SIGHUPs have no effect,
    because the kernel and a shell may each send one. SIGHUP stays ignored if it was ignored before, as under `nohup`.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}  # None is a handler set in C
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]

    arrived: dict[int, float] = {}

    def handle(number: int, _: Any) -> None:
        now = time.monotonic()
        if number not in arrived:
            arrived[number] = now
            interruption.take(signal.Signals(number))
        elif number != signal.SIGHUP and now - arrived[number] > _AT_ONCE:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
