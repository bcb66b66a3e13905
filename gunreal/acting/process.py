"""The entry point and assignment of an agent process. It loads no learning framework."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import threading
from typing import NamedTuple, NoReturn

from gunreal.acting.agent import Outbox, Worker
from gunreal.config.schema import Config, ConfigError
from gunreal.config.warning import catch_warnings, warn
from gunreal.envs.process_groups import exit_with_the_server
from gunreal.experience import queues
from gunreal.experience.segment import Layout, Segment
from gunreal.tasks import registry
from gunreal.tasks.calls import TaskError
from gunreal.tasks.recorded import tasks_of_agents

# Exit code for invalid input, which the error output describes. Not 2, with which an environment may end the process.
EXIT_BAD_INPUT = os.EX_CONFIG
# Exit code for a mistake in an auxiliary task, which the last line of the error output describes.
EXIT_TASK_ERROR = os.EX_SOFTWARE


class Assignment(NamedTuple):
    """Everything that an agent process needs at its start."""

    config: Config
    layout: Layout
    process: int
    segment_fd: int
    wake_fd: int
    outbox: Outbox
    folder: str  # of temporary files


def _exit(code: int, error: Exception) -> NoReturn:
    """Ends the process at once, so that the error is the last line of its output."""
    sys.stdout.flush()  # what environments have printed
    print(error, file=sys.stderr, flush=True)
    os._exit(code)


def main() -> None:
    """Entry point of an agent process. Its `Assignment` arrives pickled on standard input."""
    task = pickle.load(sys.stdin.buffer)
    threading.Thread(target=exit_with_the_server, args=(task.folder,), daemon=True).start()
    catch_warnings(warn)  # the server passes on these lines
    config, layout = task.config, task.layout
    try:
        tasks = tasks_of_agents(registry.load_tasks(config.tasks, config.task), layout.spec)
        worker = Worker(config, layout, tasks, task.process, Segment(layout, task.segment_fd), task.outbox)
    except ConfigError as error:
        _exit(EXIT_BAD_INPUT, error)
    try:
        worker.start()
        while True:
            worker.handle(queues.get(task.wake_fd, queues.REPLY, 1024, None))
    except queues.Closed:  # the server has closed the pipe, which is the normal end of a process
        pass
    except TaskError as error:
        try:
            worker.close()  # here too, because `_exit` goes past the end of the outer block
        finally:  # an environment that cannot be closed must not hide the mistake
            _exit(EXIT_TASK_ERROR, error)
    finally:
        worker.close()
        shutil.rmtree(task.folder, ignore_errors=True)  # the server does so too, unless it was killed
