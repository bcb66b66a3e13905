"""A resizable set of threads that do the same work, such as the trainers or the predictors of one queue."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_WAIT = 0.1  # seconds after which a thread checks whether it should end


class Crew:
    """Threads that repeatedly fetch work and do it until they are stopped.

    Args:
      name: prefix of the threads' names.
      fetch: `fetch(timeout)` returns work, or None or an empty result after `timeout` seconds without work.
      failed: function called with an exception raised by `fetch` or `work`. The thread then ends.
      nice: increment of the threads' nice value, which lets other threads go first when cores are scarce.
      at_once: maximum number of threads that hold work or wait for it at the same time. None means all.
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
        """Starts threads, or lets the newest ones end after their current work."""
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
            os.nice(self._nice)  # affects only this thread on Linux; 0 changes nothing
            while index < self._size:
                self._turn(index)
        except BaseException as error:  # noqa: BLE001  every failure must be reported to the run
            self._failed(error)

    def _turn(self, index: int) -> None:
        """Waits for a place and for work, and does the work.

        Fetching may take longer than `_WAIT` while parts of the work still arrive. Its time counts as idle.
        """
        before = time.monotonic()
        placed = self._places.acquire(timeout=_WAIT)
        try:
            item = self._fetch(_WAIT) if placed and index < self._size else None
            self._idle += time.monotonic() - before  # racy between threads, but only a statistic
            if item is not None and len(item):
                self._work(item)
        finally:
            if placed:
                self._places.release()

    def idle_share(self) -> float:
        """Share of time since the last call that the threads waited for work, from 0 to 1."""
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
