from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

import pytest

from gunreal.cluster import engine
from gunreal.cluster.engine import Engine, HeadLost
from gunreal.config.schema import Config, ConfigError
from gunreal.runtime import signals


@pytest.fixture
def folder(monkeypatch):
    """A folder with a short name for those of Ray."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield folder


def test_a_folder_that_is_too_long_for_sockets_is_named(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(folder))
    with pytest.raises(ConfigError, match=rf"may have 31 bytes, and {folder} has {len(str(folder))}; set RAY_TMPDIR"):
        Engine(Config(nodes=2))
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("", "free some space in /tmp and /dev/shm, or see Ray's logs in "),
        ("auto", "start it with ray start --head, or"),
    ],
)
def test_an_error_of_ray_names_what_to_do(address, remedy, folder):
    """Only a cluster has an address and a token."""

    def fail(**options):
        raise Exception("Failed to start.\nA log.")  # noqa: TRY002  as Ray does

    found = Engine.__new__(Engine)
    found.ray, found._guard = types.SimpleNamespace(init=fail), None
    with pytest.raises(ConfigError) as caught:
        found._connect(address)
    text = str(caught.value)
    assert f"Failed to start; {remedy}" in text and "\n" not in text
    assert ("address" in text) == ("token" in text) == bool(address)
    if found._guard:
        found._guard.close()
        assert os.path.isdir(found._guard.folder) and f"logs in {found._guard.folder}/session_latest" in text


class HalfRay:
    """A Ray whose start ends with an error, when one of its processes has started already."""

    def __init__(self, error):
        self._error, self.process = error, None

    def init(self, _temp_dir, **options):
        self.folder = _temp_dir
        with open(f"{_temp_dir}/log", "w") as log:
            self.process = subprocess.Popen(["sleep", "100"], stdout=log)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise self._error

    def is_initialized(self):
        return False


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt("SIGINT"), "SIGINT"),
        (SystemExit(15), "SIGTERM"),
        (SystemExit(1), "SIGTERM"),
        (ValueError(), None),
    ],
)
def test_an_interrupted_start_leaves_nothing(monkeypatch, folder, error, raised):
    """Ray's handlers of SIGTERM raise SystemExit. The log files of a start that has failed are kept."""
    half = HalfRay(error)
    monkeypatch.setitem(sys.modules, "ray", half)
    monkeypatch.setattr(engine, "_prepare_local", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    with signals.handled(), pytest.raises(KeyboardInterrupt if raised else ConfigError) as caught:
        Engine(Config(nodes=2))
    assert raised is None or str(caught.value) == raised
    assert half.process.wait(1) == -signal.SIGKILL
    assert os.path.exists(half.folder) == (raised is None)
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_exit_without_a_signal_is_no_signal(monkeypatch, folder):
    """Such as that of a user's own handler, or of a hook of Ray."""
    monkeypatch.setitem(sys.modules, "ray", HalfRay(SystemExit("the hook is wrong")))
    monkeypatch.setattr(engine, "_prepare_local", lambda: None)
    with signals.handled(), pytest.raises(SystemExit, match="the hook is wrong"):
        Engine(Config(nodes=2))


@pytest.fixture
def connected(monkeypatch):
    """An engine whose head listens until it is closed."""
    monkeypatch.setattr(engine, "_SLICE", 0.01)
    monkeypatch.setattr(engine, "_SILENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as head:
        found = Engine.__new__(Engine)
        found._head = "{}:{}".format(*head.getsockname())
        found._looked, found._silent = time.monotonic(), 0.0
        yield found, head


def test_a_call_that_waits_for_a_dead_head_ends(connected):
    found, head = connected
    waits, ended = threading.Event(), threading.Event()

    def call():
        head.close()
        waits.set()
        ended.wait(60)

    try:
        with pytest.raises(HeadLost, match="is lost; start the cluster again"):
            found._asked(call)
        assert waits.is_set() and found.is_lost
    finally:
        ended.set()


def test_a_call_gives_its_result_or_its_error(connected):
    found, _ = connected
    slow = threading.Timer(0.05, lambda: None)
    assert found._asked(lambda: slow.start() or slow.join() or 3) == 3
    with pytest.raises(KeyError):
        found._asked(lambda: {}["missing"])


def test_one_failed_look_after_a_pause_of_this_process_is_no_loss(connected, monkeypatch):
    found, head = connected
    head.close()
    monkeypatch.setattr(engine, "LONGEST_STEP", 0.04)
    found._looked -= 1000
    assert not found._has_head() and not found.is_lost
    with pytest.raises(HeadLost):
        for _ in range(1000):
            time.sleep(0.005)
            assert not found._has_head()


def test_a_pause_of_this_process_does_not_end_a_wait(connected, monkeypatch):
    """Results arrive a moment after it goes on."""
    found, _ = connected
    clock, answers = [0.0], [[], [], ["result"]]

    def wait(refs, num_returns, timeout):
        clock[0] += 1000 if len(answers) == 3 else timeout
        return answers.pop(0), None

    found.ray = types.SimpleNamespace(wait=wait)
    monkeypatch.setattr(engine.time, "monotonic", lambda: clock[0])
    assert found.wait(["result"], 10.0) and not answers


def test_a_wait_ends_without_a_result(connected):
    found, _ = connected
    found.ray = types.SimpleNamespace(wait=lambda refs, num_returns, timeout: ([], time.sleep(timeout)))
    assert not found.wait(["result"], 0.05)
