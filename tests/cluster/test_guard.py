"""The process that ends what a run leaves, on processes that stand for those of Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from training import is_gone, wait_until

WAIT = "import sys, time; file = open(sys.argv[1], sys.argv[2]); print(flush=True); time.sleep(1000)"


@pytest.fixture
def session(tmp_path):
    """The folder of a session with a file."""
    folder = tmp_path / "session"
    folder.mkdir()
    (folder / "log").touch()
    return folder


@pytest.fixture
def start():
    """Starts a process that keeps a file open."""
    processes = []

    def start(path: Path, mode: str) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-c", WAIT, str(path), mode], stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("ending", "code"), [("guard.close()", 0), ("os.kill(os.getpid(), 9)", -9)])
def test_it_ends_those_who_write_there_and_removes_the_folder(session, start, tmp_path, ending, code):
    """But not the run, which may end it or be killed."""
    writer, reader, other = start(session / "log", "a"), start(session / "log", "r"), start(tmp_path / "log", "a")
    program = (
        "import os, sys; from gunreal.cluster.guard import Guard\n"
        f"with open(sys.argv[1] + '/own', 'a'): guard = Guard(sys.argv[1]); {ending}"
    )
    assert subprocess.run([sys.executable, "-c", program, str(session)]).returncode == code
    wait_until(lambda: is_gone(writer.pid) and not session.exists())
    assert reader.poll() is other.poll() is None
