from __future__ import annotations

import socket
import threading
import time
import types

import pytest

from gunreal.cluster import engine
from gunreal.cluster.engine import Engine, HeadLost
from gunreal.config.schema import ConfigError


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("", "free some space in /tmp and /dev/shm, or see Ray's logs"), ("auto", "start it with ray start --head, or")],
)
def test_an_error_of_ray_names_what_to_do(address, remedy):
    """Only a cluster has an address and a token."""

    def fail(**options):
        raise RuntimeError("Failed to start.\nA log.")

    found = Engine.__new__(Engine)
    found.ray = types.SimpleNamespace(init=fail)
    with pytest.raises(ConfigError) as caught:
        found._connect(address)
    text = str(caught.value)
    assert f"Failed to start; {remedy}" in text and "\n" not in text
    assert ("address" in text) == ("token" in text) == bool(address)


@pytest.fixture
def connected(monkeypatch):
    """An engine whose head listens until it is closed."""
    monkeypatch.setattr(engine, "_SLICE", 0.01)
    monkeypatch.setattr(engine, "_SILENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as head:
        found = Engine.__new__(Engine)
        found._head = "{}:{}".format(*head.getsockname())
        found._heard = time.monotonic()
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
