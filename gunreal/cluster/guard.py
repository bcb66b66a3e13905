"""A process that ends a Ray on this machine with the run that has started it, even if the run is killed.

Ray itself ends two of its processes only after a minute, and leaves its folder behind.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

_PATIENCE = 10.0  # seconds for processes to end after they have been killed
_PAUSE = 0.05  # seconds between looks at them
_KEEP = b"keep"  # the input of the guard if the folder is to stay


class Guard:
    """Watches over a Ray from now on. It notices the end of this process because its input ends.

    Args:
      folder: the folder of Ray. All processes of Ray have log files in it open.

    Attributes:
      folder: the folder of Ray.
      keeps_folder: whether the folder stays after `close`, because someone wants to read its log files.
    """

    def __init__(self, folder: str):
        self.folder, self.keeps_folder = folder, False
        self._process = subprocess.Popen(
            [sys.executable, __file__, folder],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C and the end of the terminal are not for it
        )

    def close(self) -> None:
        """Ends what is left of Ray, and removes its folder."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed
            if self.keeps_folder:
                self._process.stdin.write(_KEEP)
            self._process.stdin.close()
        self._process.wait()


def _users(folder: Path) -> list[psutil.Process]:
    """The processes that write to files in a folder, except the run itself. Others may read them, such as `tail`."""
    run = psutil.Process().ppid()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            written = [Path(file.path) for file in process.open_files() if getattr(file, "mode", "") != "r"]
            if process.pid != run and any(folder in path.parents for path in written):
                found.append(process)
    return found


def _main(folder: Path) -> None:
    keeps_folder = sys.stdin.buffer.read() == _KEEP
    deadline = time.monotonic() + _PATIENCE
    while (users := _users(folder)) and time.monotonic() < deadline:  # one may start another before it is killed
        for process in users:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_PAUSE)
    if not keeps_folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]).resolve())
