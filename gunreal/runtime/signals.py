"""The signals that end a run in order: SIGINT, SIGTERM, and SIGHUP, which comes when a terminal is lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A signal came while there was no system to stop yet.

    Attributes:
      number: the signal.
    """

    def __init__(self, number: signal.Signals):
        super().__init__(number.name)
        self.number = number


class Interruption:
    """What a signal does: it raises `Interrupted` until `stops` was called, and then calls what that was given."""

    def __init__(self) -> None:
        self._number: signal.Signals | None = None
        self._stop: Callable[[str], None] | None = None

    def stops(self, stop: Callable[[str], None]) -> None:
        """From here on a signal calls `stop` with its name, as does one whose `Interrupted` was swallowed before."""
        self._stop = stop
        if self._number:
            stop(self._number.name)

    def take(self, number: signal.Signals) -> None:
        """Called by the signal's handler."""
        self._number = number
        if self._stop is None:
            raise Interrupted(number)
        self._stop(number.name)


@contextlib.contextmanager
def handled() -> Iterator[Interruption]:
    """Handles the signals until the end of the block; outside of the main thread, where Python can't, none of them.

    A second SIGINT or SIGTERM does what it did before the block. Further SIGHUPs do nothing: the kernel sends one and a
    shell another. SIGHUP stays ignored where it was (`nohup`).
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]

    def handle(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else before[signal.Signals(number)])
        interruption.take(signal.Signals(number))

    for number in before:
        signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
