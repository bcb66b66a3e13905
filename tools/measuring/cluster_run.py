"""A training on two nodes in a process of its own, which others disturb."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from gunreal.config.schema import ConfigError
from gunreal.records import metrics
from measuring import namespaces

NODES = 2
PATIENCE = 240.0  # seconds for anything to happen
POLL = 0.05  # seconds
FLAGS = "--env CartPole-v1 --agents 2 --agents_per_process 2 --hidden 16 --min_batch 20 --t_max 5 --objective a3c"
TIMES = "--metrics_seconds 0.25 --steps 500M --name run --checkpoint_minutes 0.05"


class Run:
    """A training on two nodes, in a process of its own.

    Args:
      folder: folder for the runs.
      network: the machines, or None for nodes on this machine without a network between them.
    """

    def __init__(self, folder: Path, network: namespaces.Network | None = None):
        self.folder, self.network = folder, network
        where = ["--runner", "cluster", *(["--address", network.address] if network else ["--nodes", str(NODES)])]
        self._errors = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115  not on the disk of the run
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "gunreal.train", *FLAGS.split(), *TIMES.split(), *where, "--logdir", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )

    def line(self) -> dict[str, Any]:
        """The newest line of metrics."""
        path = self.folder / "run" / metrics.FILE
        with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            return json.loads(file.read().splitlines()[-1])
        return {}

    def wait(self, condition: Callable[[dict[str, Any]], bool], what: str) -> float:
        """Waits until a line of metrics fulfils a condition. Returns the longest time without an update.

        Raises:
          ConfigError: it did not.
        """
        begun = updated = time.monotonic()
        updates, pause = self.line().get("updates", 0), 0.0
        while True:
            line, now = self.line(), time.monotonic()
            if line.get("updates", 0) > updates:
                updates, updated = line["updates"], now
            pause = max(pause, now - updated)
            if line and condition(line):
                return pause
            if now - begun > PATIENCE or self.popen.poll() is not None:
                raise ConfigError(f"{what}; the training wrote: {self.said()[-2000:]}")
            time.sleep(POLL)

    def said(self) -> str:
        """What the training has written to its standard error."""
        return Path(self._errors.name).read_text()

    def settle(self) -> dict[str, Any]:
        """Waits until all nodes take part. Returns a line of metrics."""
        self.wait(lambda line: line.get("nodes") == NODES and line["updates"] > 20, "the nodes did not start")
        self.wait(Back(), "the nodes did not act")
        return self.line()

    def processes(self, name: str) -> list[psutil.Process]:
        """The processes that Ray calls `ray::NAME`, on all machines of the run. For a moment, one may have no name."""
        found: list[psutil.Process] = []
        if self.network:
            for pid in (pid for place in range(1, NODES + 1) for pid in self.network.pids(place)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(pid))
        else:
            found = psutil.Process(self.popen.pid).children(recursive=True)
        return [process for process in found if title(process).split(".")[0] == f"ray::{name}"]

    def process(self, name: str, place: int = 0) -> psutil.Process:
        """The first of them, or the first one on the machine `place`.

        Raises:
          ConfigError: there is none within a minute.
        """
        for _ in range(600):
            for process in self.processes(name):
                if not place or (self.network and self.network.place(process.pid) == place):
                    return process
            time.sleep(0.1)
        raise ConfigError(f"there is no process ray::{name}")

    def close(self) -> None:
        """Ends the training."""
        if self.popen.poll() is None:
            self.popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(60)
        self.popen.kill()
        self._errors.close()


class Back:
    """Whether all nodes have acted since one of them was lost, if `since` is the line before."""

    def __init__(self, since: dict[str, Any] | None = None):
        self._since, self._acted = since, set[str]()

    def __call__(self, line: dict[str, Any]) -> bool:
        """Looks at a line of metrics."""
        if self._since and line["nodes"] == NODES and line["replaced"] == self._since["replaced"]:
            return False
        self._since = None  # a node is away, or has been replaced
        if line["nodes"] == NODES:
            # A new machine may take part under a new number.
            self._acted |= {key for key, value in line.items() if re.fullmatch(r"node\d+_pps", key) and value}
        return len(self._acted) >= NODES


def title(process: psutil.Process) -> str:
    """The name of a process that Ray has started."""
    with contextlib.suppress(psutil.Error, IndexError):
        return process.cmdline()[0]
    return ""
