from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # another test may have imported Ray
    monkeypatch.setenv("TMPDIR", str(folder))
    with pytest.raises(ConfigError, match=rf"may have 31 bytes, and {folder} has {len(str(folder))}; set RAY_TMPDIR"):
        Engine(Config(runner="cluster", nodes=2))
    assert not list(folder.iterdir())


class HalfRay:
    """A Ray whose start ends with an error, when one of its processes has started already."""

    def __init__(self, error):
        self._error, self.process = error, None

    def init(self, address, _temp_dir="", **options):
        self.folder = _temp_dir
        if _temp_dir:
            with open(f"{_temp_dir}/log", "w") as log:
                self.process = subprocess.Popen(["sleep", "100"], stdout=log)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise self._error

    def is_initialized(self):
        return False


@pytest.fixture
def half(monkeypatch, folder):
    """Lets the start of Ray fail."""
    half = HalfRay(None)
    monkeypatch.setitem(sys.modules, "ray", half)
    monkeypatch.setattr(engine, "_prepare_local", lambda: None)
    return half


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("", "free some space in /tmp and /dev/shm, or see Ray's logs in "),
        ("auto", "start it with ray start --head, or check its address and token"),
    ],
)
def test_an_error_of_ray_names_what_to_do(half, address, remedy):
    """And ends its processes. The log files of a start that has failed are kept."""
    half._error = ValueError("Failed to start.\nA log.")
    with pytest.raises(ConfigError) as caught:
        Engine(Config(runner="cluster", nodes=2, address=address))
    text = str(caught.value)
    assert f"Failed to start; {remedy}" in text and "\n" not in text
    assert address or text.endswith(f"logs in {half.folder}/session_latest/logs") and os.path.isdir(half.folder)
    assert address or half.process.wait(1) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt("SIGINT"), "SIGINT"),
        (SystemExit(15), "SIGTERM"),
        (SystemExit(1), "SIGTERM"),
        (SystemExit("the hook is wrong"), ""),  # that of a user's own handler, or of a hook of Ray, is no signal
    ],
)
def test_an_interrupted_start_leaves_nothing(half, error, raised):
    """Ray's handlers of SIGTERM raise SystemExit."""
    half._error, before = error, signal.getsignal(signal.SIGTERM)
    with signals.handled(), pytest.raises(KeyboardInterrupt if raised else SystemExit) as caught:
        Engine(Config(runner="cluster", nodes=2))
    assert str(caught.value) == (raised or str(error))
    assert half.process.wait(1) == -signal.SIGKILL and not os.path.exists(half.folder)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def connected(monkeypatch):
    """A Ray that runs already, its engine, the socket of its head, and a clock that goes on whenever it is read."""
    now = [0.0]

    def monotonic():
        now[0] += 0.1
        return now[0]

    monkeypatch.setattr(engine, "_SLICE", 0.01)
    monkeypatch.setattr(engine.time, "monotonic", monotonic)
    with socket.create_server(("127.0.0.1", 0)) as head:
        context = types.SimpleNamespace(gcs_address="{}:{}".format(*head.getsockname()))
        ray = types.SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context, nodes=list)
        monkeypatch.setitem(sys.modules, "ray", ray)
        yield ray, Engine(Config(runner="cluster", nodes=2, address="auto")), head, now


def test_a_call_that_waits_for_a_dead_head_ends(connected):
    ray, found, head, _ = connected
    waits = threading.Event()
    ray.nodes = lambda: head.close() or waits.wait(60)
    with pytest.raises(HeadLost, match="is lost; start the cluster again"):
        found.machines()
    waits.set()
    assert found.is_lost


def test_one_failed_look_after_a_pause_of_this_process_is_no_loss(connected):
    _, found, head, now = connected
    head.close()
    now[0] += 1000
    for _ in range(30):
        assert found.machines() == [] and not found.is_lost
    with pytest.raises(HeadLost):
        for _ in range(30):
            found.machines()


def test_a_pause_of_this_process_does_not_end_a_wait(connected):
    """Results arrive a moment after it goes on."""
    ray, found, _, now = connected
    answers = [[], [], ["result"]]

    def wait(refs, num_returns, timeout):
        now[0] += 1000
        return answers.pop(0) if answers else [], None

    ray.wait = wait
    assert found.wait(["result"], 0.1) and not answers
    assert not found.wait(["result"], 0.1)
