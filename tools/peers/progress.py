"""A file through which a program reports its progress. This module imports the standard library only."""

from __future__ import annotations

import os
import struct
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


class Progress:
    """A file shared by two processes, with the number of agent steps trained and a flag to stop."""

    def __init__(self, path: str | Path):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def report(self, steps: int) -> bool:
        """Reports the agent steps trained so far. Called by the driver, which must stop if this returns False."""
        os.pwrite(self._fd, struct.pack("q", steps), 0)
        return not os.pread(self._fd, 1, 8)

    def steps(self) -> int:
        """Returns the last report, or 0 before the first one. Called by the measuring program."""
        return struct.unpack("q", os.pread(self._fd, 8, 0) or bytes(8))[0]

    def stop(self) -> None:
        """Makes the driver's next report its last one. Called by the measuring program."""
        os.pwrite(self._fd, b"!", 8)

    def close(self) -> None:
        """Closes the file in this process."""
        os.close(self._fd)
