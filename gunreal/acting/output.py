"""The output of an agent process: kept for the message in case it dies, and searched for warnings."""

from __future__ import annotations

import fcntl
import os
import tempfile

from gunreal.config.warning import PREFIX, warn_once

_KEPT = 2**20  # bytes
_START = PREFIX.encode()


class Output:
    """A file that an agent process and everything that it starts print to."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._searched = 0  # bytes
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied while the process writes

    def fileno(self) -> int:
        """The descriptor of the file."""
        return self._file.fileno()

    def last(self) -> str:
        """The last 4,000 bytes as text, without warnings."""
        text = os.pread(self.fileno(), 4000, max(0, self._size() - 4000)).decode(errors="replace")
        return "\n".join(line for line in text.splitlines() if not line.startswith(PREFIX)).strip()

    def pass_on_warnings(self) -> None:
        """Prints the new warnings, each of them once. Empties the file if it has grown large.

        An environment may print something at every step.
        """
        size = self._size()
        lines, end, _ = os.pread(self.fileno(), size - self._searched, self._searched).rpartition(b"\n")
        self._searched += len(lines) + len(end)
        for line in lines.split(b"\n"):
            if line.startswith(_START):
                warn_once(line.removeprefix(_START).decode(errors="replace"))
        if size > _KEPT:
            os.ftruncate(self.fileno(), 0)
            self._searched = 0

    def close(self) -> None:
        """Prints the remaining warnings, and removes the file."""
        self.pass_on_warnings()
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self.fileno()).st_size
