"""What a training on two nodes does when something fails: how long updates pause, and when the node is back."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from gunreal.config.schema import ConfigError
from measuring import namespaces
from measuring.cluster_run import NODES, PATIENCE, POLL, Back, Run, title

CUT = 15.0  # seconds without a network, or with a full disk
_DISK = 64  # MiB of a disk that is filled
_SILENCE = 600.0  # seconds until processes must have ended that cannot reach Ray's head


class Result(NamedTuple):
    """What was measured, in seconds. A value is None if it does not apply.

    Attributes:
      pause: longest time without an update, from the fault until the node is back.
      back: time until all nodes take part, from the fault or from the end of its cause.
      ended: time until the run has ended.
      gone: time until all its processes have ended.
    """

    pause: float | None = None
    back: float | None = None
    ended: float | None = None
    gone: float | None = None


def _loses(signaled: str, number: signal.Signals) -> Callable[[Run], Result]:
    def fault(run: Run) -> Result:
        before, begun = run.settle(), time.monotonic()
        run.process(signaled).send_signal(number)
        pause = run.wait(Back(before), "nothing took its place")
        return Result(pause, time.monotonic() - begun)

    return fault


def _lose_computer(run: Run) -> Result:
    assert run.network
    run.settle()
    place = 3 - run.network.place(run.process("Reducer").pid)
    run.network.kill(place)
    pause = run.wait(lambda line: line["nodes"] < NODES, "its loss was not noticed")
    begun = time.monotonic()
    run.network.add(place)
    pause = max(pause, run.wait(Back(), "it did not come back"))
    return Result(pause, time.monotonic() - begun)


def _cuts(with_reducer: bool) -> Callable[[Run], Result]:
    def fault(run: Run) -> Result:
        assert run.network
        before = run.settle()
        place = run.network.place(run.process("Reducer").pid)
        place = place if with_reducer else 3 - place
        run.network.cut(place)
        begun, back = time.monotonic(), Back(before)
        pause = run.wait(lambda line: back(line) or time.monotonic() - begun >= CUT, "the run ended")
        run.network.cut(place, False)
        begun = time.monotonic()
        pause = max(pause, run.wait(back, "the node did not come back"))
        return Result(pause, time.monotonic() - begun)

    return fault


def _ends(*names: str) -> Callable[[Run], Result]:
    """Kills processes by name. "" is the coordinator."""

    def fault(run: Run) -> Result:
        run.settle()
        children = psutil.Process(run.popen.pid).children(recursive=True)
        begun = time.monotonic()
        for process in [child for child in children if child.name() in names]:
            process.kill()
        if "" in names:
            run.popen.kill()
        try:
            run.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise ConfigError("the run did not end") from error
        ended = time.monotonic() - begun
        _wait_for(children)
        return Result(ended=ended, gone=time.monotonic() - begun)

    return fault


def _lose_first(run: Run) -> Result:
    """Cuts the network as well, so that the others cannot learn of its end from closed connections."""
    assert run.network
    run.settle()
    others = range(1, NODES + 1)
    left = [psutil.Process(pid) for place in others for pid in run.network.pids(place)]
    for place in others:
        run.network.cut(place)
    begun = time.monotonic()
    run.network.kill(0)
    run.popen.kill()
    _wait_for(left, _SILENCE)
    return Result(gone=time.monotonic() - begun)


def _wait_for(processes: list[psutil.Process], seconds: float = PATIENCE) -> None:
    """Waits until processes have ended. Raises ConfigError if they do not."""
    left = psutil.wait_procs(processes, seconds)[1]
    if left:
        raise ConfigError(f"processes are left: {[title(process) for process in left]}")


def fill(folder: Path) -> Path:
    """Fills the disk of a folder. Returns the file that takes the space."""
    path = folder / "filler"
    with open(path, "ab", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def _fill_run(run: Run) -> Result:
    """The metrics can't tell about updates meanwhile. Their number afterward does."""
    before, begun = run.settle(), time.monotonic()
    while time.monotonic() - begun < CUT:
        filler = fill(run.folder)  # again, because old checkpoints are removed
        time.sleep(POLL)
    filler.unlink()
    begun = time.monotonic()
    run.wait(lambda line: line["seconds"] > before["seconds"] + CUT, "no metrics after space was free")
    back, line = time.monotonic() - begun, run.line()
    if "free some space" not in run.said():
        raise ConfigError("the disk was not full")
    rate = (line["updates"] - before["updates"]) / (line["seconds"] - before["seconds"])
    if rate < 0.3 * before["updates"] / before["seconds"]:
        raise ConfigError("training did not go on while the disk was full")
    return Result(back=back)


def _fill_computer(run: Run) -> Result:
    """Its node is killed meanwhile. Ray cannot start another one there before space is free."""
    assert run.network
    before = run.settle()
    node = run.process("Node", NODES)
    filler = fill(run.network.disk(NODES))
    pause = run.wait(lambda line: line["updates"] > before["updates"] + 50, "training stopped")
    node.kill()
    begun, back = time.monotonic(), Back(run.line())
    pause = max(pause, run.wait(lambda line: back(line) or time.monotonic() - begun >= CUT, "the run ended"))
    filler.unlink()
    begun = time.monotonic()
    pause = max(pause, run.wait(back, "nothing took its place"))
    return Result(pause, time.monotonic() - begun)


class Fault(NamedTuple):
    """A fault.

    Attributes:
      text: what fails.
      measure: measures it.
      place: "here", "network" (needs Linux and root), or "disk" (needs root for a small disk).
    """

    text: str
    measure: Callable[[Run], Result]
    place: str = "here"


FAULTS = {
    "node-killed": Fault("the process of a node is killed", _loses("Node", signal.SIGKILL)),
    "node-stopped": Fault("the process of a node is stopped (SIGSTOP)", _loses("Node", signal.SIGSTOP)),
    "reducer-killed": Fault("a reducer is killed", _loses("Reducer", signal.SIGKILL)),
    "computer-lost": Fault("all processes of a computer are killed, and Ray starts again", _lose_computer, "network"),
    "first-lost": Fault("the first computer is lost", _lose_first, "network"),
    "network-cut": Fault(f"the network of a computer is cut for {CUT:g} s", _cuts(False), "network"),
    "reducer-cut": Fault(f"the network of the reducer's computer is cut for {CUT:g} s", _cuts(True), "network"),
    "run-disk-full": Fault(f"the disk of the run's folder is full for {CUT:g} s", _fill_run, "disk"),
    "node-disk-full": Fault(
        f"the disk of a computer is full for {CUT:g} s, and its node is killed", _fill_computer, "network"
    ),
    "coordinator-killed": Fault("the process that you started is killed", _ends("")),
    "head-killed": Fault("the head of Ray (gcs_server) is killed", _ends("gcs_server")),
    "ray-killed": Fault("the Ray service (gcs_server and raylet) is killed", _ends("gcs_server", "raylet")),
}


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    size = f"size={_DISK}m"
    namespaces.run("mount", "-t", "tmpfs", "-o", size, "none", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def measure(name: str) -> Result:
    """Starts a training, lets something fail, and ends the training.

    Raises:
      ConfigError: it did not survive the fault, or network namespaces cannot be made.
    """
    fault = FAULTS[name]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        if fault.place == "disk":
            namespaces.check()
            stack.enter_context(_small_disk(folder))
        disk = _DISK if name == "node-disk-full" else 0
        network = stack.enter_context(namespaces.started(NODES, disk=disk)) if fault.place == "network" else None
        run = Run(folder, network)
        stack.callback(run.close)
        return fault.measure(run)
