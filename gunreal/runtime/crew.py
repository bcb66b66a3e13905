"""A resizable set of threads that do the same work: the predictors of one queue, the trainers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_WAIT = 0.1  # seconds after which a thread looks whether it is to end


class Crew:
    """Threads that fetch something to do and do it, until they are told to stop.

    Args:
      name: names the threads.
      fetch: `fetch(timeout)` gives work, or something empty after `timeout` seconds without any.
      work: does it.
      failed: called with an exception that `fetch` or `work` raised; the thread then ends.
      nice: by which the threads give way to the process's others where cores are short.
      at_once: how many of the threads may hold work, or wait for it, at a time; None: all.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[float], Any],
        work: Callable[[Any], Any],
        failed: Callable[[BaseException], None],
        nice: int = 0,
        at_once: int | None = None,
    ):
        self.name, self._fetch, self._work, self._failed, self._nice = name, fetch, work, failed, nice
        self._places = threading.Semaphore(at_once or sys.maxsize)
        self._threads: list[threading.Thread] = []
        self._size = 0
        self._idle = 0.0
        self._since = time.monotonic()

    def __len__(self) -> int:
        return self._size

    def resize(self, size: int) -> None:
        """Starts threads, or lets the newest ones end after their present work."""
        self._size = size
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        taken = {thread.name for thread in self._threads}
        for index in range(size):
            name = f"{self.name}-{index}"
            if name not in taken:
                thread = threading.Thread(target=self._run, args=(index,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, index: int) -> None:
        try:
            os.nice(self._nice)  # of this thread alone, on Linux; 0 changes nothing
            while index < self._size:
                self._turn(index)
        except BaseException as error:  # noqa: BLE001  whatever it is, the run must hear of it
            self._failed(error)

    def _turn(self, index: int) -> None:
        """Waits for a place and for work, each a tenth of a second at most, and does it."""
        before = time.monotonic()
        placed = self._places.acquire(timeout=_WAIT)
        try:
            item = self._fetch(_WAIT) if placed and index < self._size else None
            self._idle += time.monotonic() - before  # racy between threads, and only a statistic
            if item is not None and len(item):
                self._work(item)
        finally:
            if placed:
                self._places.release()

    def idle_share(self) -> float:
        """Share of the threads' time since the last call that they waited for work, 0..1."""
        now = time.monotonic()
        share = self._idle / max(1e-9, (now - self._since) * max(1, self._size))
        self._idle, self._since = 0.0, now
        return min(1.0, share)

    def stop(self) -> None:
        """Ends all threads and waits for them."""
        self._size = 0
        for thread in self._threads:
            thread.join()
        self._threads = []
