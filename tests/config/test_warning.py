from __future__ import annotations

import queue
import sys

import pytest
from broken_pipes import unread

from gunreal.config import warning
from gunreal.config.warning import waiting, warn


def test_a_warning_is_one_line_on_standard_error(capsys):
    warn("the disk is full")
    assert capsys.readouterr() == ("", "gunreal: the disk is full\n")


def test_a_standard_error_that_nobody_reads_ends_nothing(monkeypatch):
    error = unread()
    monkeypatch.setattr(sys, "stderr", error)
    warn("the disk is full")
    with pytest.raises(BrokenPipeError):  # the text that could not be written
        error.close()
    warn("the stream is closed")


def test_a_closed_standard_error_leaves_standard_output_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    warn("the disk is full")
    assert capsys.readouterr().out == ""


def test_a_long_wait_is_explained(monkeypatch):
    told = queue.Queue()
    monkeypatch.setattr(warning, "_PATIENCE", 0.01)
    monkeypatch.setattr(warning, "warn", told.put)
    with waiting("the first reset of Slow-v0"):
        assert told.get(timeout=60) == "still waiting for the first reset of Slow-v0; if it hangs, press Ctrl-C"


def test_a_short_wait_is_silent_also_if_it_fails(monkeypatch, capsys):
    timers = []
    monkeypatch.setattr(warning.threading.Timer, "start", lambda timer: timers.append(timer))
    with pytest.raises(ValueError), waiting("the first reset of Quick-v0"):
        raise ValueError
    (timer,) = timers
    timer.run()  # what its thread does at the end
    assert capsys.readouterr().err == ""
