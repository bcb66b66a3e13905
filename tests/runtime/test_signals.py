from __future__ import annotations

import os
import signal
import threading

import pytest

from gunreal.runtime.signals import Interrupted, handled


@pytest.fixture(autouse=True)
def own_handlers():
    """Each test starts with the default handlers, whatever the test process was started with, and leaves no trace."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "before", "stops"),
    [
        (signal.SIGINT, signal.SIG_DFL, True),
        (signal.SIGTERM, signal.SIG_DFL, True),
        (signal.SIGHUP, signal.SIG_DFL, True),
        (signal.SIGHUP, signal.SIG_IGN, False),  # an ignored one stays ignored
    ],
)
def test_a_signal_stops_what_there_is(number, before, stops):
    signal.signal(number, before)
    stopped = []
    with handled() as interruption:
        interruption.stops(stopped.append)
        os.kill(os.getpid(), number)
        assert stopped == [number.name] * stops
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_there_is_anything_to_stop_raises(number):
    stopped = []
    with handled() as interruption:
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), number)
        assert caught.value.number == number
        interruption.stops(stopped.append)  # somebody has caught the exception: the run must end all the same
    assert stopped == [number.name]


@pytest.mark.parametrize(("pause", "expected"), [(0.1, []), (2.0, ["second"])])
def test_a_second_signal_is_as_it_was_before_unless_it_comes_at_once(monkeypatch, pause, expected):
    """`timeout` sends two at once, which are one wish to stop."""
    seen, stopped, now = [], [], [100.0]
    monkeypatch.setattr("gunreal.runtime.signals.time.monotonic", lambda: now[0])
    signal.signal(signal.SIGTERM, lambda *_: seen.append("second"))
    with handled() as interruption:
        interruption.stops(stopped.append)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)  # the second one would kill this process by default
            now[0] += pause
    assert seen == expected and stopped == ["SIGTERM", "SIGHUP"]


def test_a_handler_set_in_c_becomes_the_default(monkeypatch):
    """Python does not know such a handler, and cannot set it again."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    stopped = []
    with handled() as interruption:
        interruption.stops(stopped.append)
        os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.undo()
    assert stopped == ["SIGTERM"] and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_another_thread_handles_none():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look():
        with handled():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
