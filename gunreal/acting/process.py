"""The entry point and assignment of an agent process. It loads no learning framework."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import threading
from typing import NamedTuple

from gunreal.acting.agent import Outbox, Worker
from gunreal.config.schema import Config, ConfigError
from gunreal.experience import queues
from gunreal.experience.segment import Layout, Segment
from gunreal.tasks import registry

# Exit code for invalid input, which the error output describes. Not 2, with which an environment may end the process.
EXIT_BAD_INPUT = os.EX_CONFIG


class Assignment(NamedTuple):
    """Everything that an agent process needs at its start."""

    config: Config
    layout: Layout
    process: int
    segment_fd: int
    wake_fd: int
    outbox: Outbox
    folder: str  # of temporary files


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


def main() -> None:
    """Entry point of an agent process. Its `Assignment` arrives pickled on standard input."""
    task = pickle.load(sys.stdin.buffer)
    threading.Thread(target=exit_with_the_server, args=(task.folder,), daemon=True).start()
    config, layout = task.config, task.layout
    try:
        tasks = registry.load_tasks(config.tasks, config.task)
        worker = Worker(config, layout, tasks, task.process, Segment(layout, task.segment_fd), task.outbox)
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    try:
        worker.start()
        while True:
            worker.handle(queues.get(task.wake_fd, queues.REPLY, 1024, None))
    except queues.Closed:  # the server has closed the pipe, which is the normal end of a process
        pass
    finally:
        worker.close()
        shutil.rmtree(task.folder, ignore_errors=True)  # the server does so too, unless it was killed
