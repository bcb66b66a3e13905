"""Processes that lead a group of their own, to which everything belongs that their environments start."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

from gunreal.config.process import told

_LEAVING = 1.0  # seconds that a process has to close its environments


def tell(leader: subprocess.Popen[bytes], *values: object) -> None:
    """Gives the process its order. One that has died immediately gets none."""
    assert leader.stdin
    with contextlib.suppress(BrokenPipeError):
        leader.stdin.write(told(*values))
        leader.stdin.flush()


def close_input(leader: subprocess.Popen[bytes]) -> None:
    """Closes the server's end of the input."""
    assert leader.stdin
    with contextlib.suppress(BrokenPipeError):  # it died before it had read everything
        leader.stdin.close()


def has_ended(leader: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. Whatever it has left running is killed then."""
    if leader.returncode is not None:
        return True
    # `poll` would reap it. Until it is reaped, no other process or group can have its number.
    ended = os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    if ended:
        _end(leader)
    return ended


def kill(leader: subprocess.Popen[bytes]) -> None:
    """Kills the process and everything that it has started."""
    if not has_ended(leader):
        _end(leader)


def leave(leader: subprocess.Popen[bytes], since: float) -> None:
    """Waits until a second after `since` for the end of a process that has been asked for it, and then kills it."""
    while not has_ended(leader) and time.monotonic() < since + _LEAVING:
        time.sleep(0.002)
    kill(leader)


def _end(leader: subprocess.Popen[bytes]) -> None:
    os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def exit_with_the_server(folder: str = "") -> None:
    """Kills this process and everything its environments have started when the server's end of stdin is closed.

    Removes `folder` before, because the server cannot.
    """
    os.read(sys.stdin.fileno(), 1)  # not `sys.stdin.buffer`, whose lock a thread must not hold when Python ends
    try:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.killpg(0, signal.SIGKILL)
