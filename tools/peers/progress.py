"""How far a program is: a file that it shares with the one that measures it. Imports the standard library only."""

from __future__ import annotations

import os
import struct
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


class Progress:
    """A file that two processes share: how many agent steps have been learned from, and whether to stop."""

    def __init__(self, path: str | Path):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def report(self, steps: int) -> bool:
        """The driver's side: tells that so many agent steps, since the start, are acted and learned; False: stop."""
        os.pwrite(self._fd, struct.pack("q", steps), 0)
        return not os.pread(self._fd, 1, 8)

    def steps(self) -> int:
        """The watcher's side: what was reported last; 0 at first."""
        return struct.unpack("q", os.pread(self._fd, 8, 0) or bytes(8))[0]

    def stop(self) -> None:
        """The watcher's side: the driver's next report is to be its last."""
        os.pwrite(self._fd, b"!", 8)

    def close(self) -> None:
        """Closes this process's side."""
        os.close(self._fd)
