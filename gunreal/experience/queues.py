"""Queues between processes: pipes of fixed-size records.

One read takes all waiting records. Small writes are atomic. This module declares every record that crosses a process
boundary. Records never hold experience, only references to rows of a ring.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios

import numpy as np

# A group of agents requests a prediction.
REQUEST = np.dtype([("process", "<i4"), ("group", "<i4")])
# The server tells an agent process that a queue has served a group. Queue TRAINED means its rollouts have been taken.
REPLY = np.dtype([("queue", "u1"), ("group", "u1")])
# A finished rollout, with one sequence of each task, is ready for training.
ROLLOUT = np.dtype([("process", "<i4"), ("agent", "<i4"), ("first", "<i8")])
# An episode has ended: its score, the undiscounted sum of its unclipped rewards.
EPISODE = np.dtype("<f8")

TRAINED = 255
ATOMIC = 4096  # bytes; POSIX guarantees 512, Linux a page


class Pipe:
    """A queue of records of one dtype, with any number of writers and readers."""

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)

    def put(self, records: np.ndarray) -> None:
        """Appends records `[n]`."""
        put(self.write_fd, records)

    def get(self, most: int, timeout: float | None) -> np.ndarray:
        """Takes at most `most` waiting records, after waiting up to `timeout` seconds (None: forever) for the first."""
        return get(self.read_fd, self.dtype, most, timeout)

    def __len__(self) -> int:
        waiting = fcntl.ioctl(self.read_fd, termios.FIONREAD, b"\0" * 4)
        return struct.unpack("i", waiting)[0] // self.dtype.itemsize

    def end(self) -> None:
        """Closes the writing end. Reading raises Closed once the remaining records have been read."""
        fd, self.write_fd = self.write_fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Closes both ends."""
        self.end()
        os.close(self.read_fd)


class Closed(Exception):
    """The other end of a pipe is closed."""


def put(fd: int, records: np.ndarray) -> None:
    """Writes records `[n]` to a pipe's end in atomic pieces. Raises Closed if there is no reader."""
    per_write = ATOMIC // records.dtype.itemsize
    try:
        for start in range(0, len(records), per_write):
            os.write(fd, records[start : start + per_write].tobytes())
    except BrokenPipeError as error:
        raise Closed from error


def get(fd: int, dtype: np.dtype, most: int, timeout: float | None) -> np.ndarray:
    """Reads at most `most` waiting records `[n]`, n >= 0, from the end of a non-blocking pipe.

    Waits up to `timeout` seconds for the first record; None waits forever. Raises Closed if the queue is empty and
    there is no writer.
    """
    if timeout != 0:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.poll(None if timeout is None else timeout * 1000)
    try:
        data = os.read(fd, most * dtype.itemsize)
    except BlockingIOError:  # nothing is waiting, or another thread was faster
        return np.empty(0, dtype)
    if not data:
        raise Closed
    return np.frombuffer(data, dtype)
