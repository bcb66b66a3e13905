from __future__ import annotations

import sys

import pytest
from broken_pipes import unread

from gunreal.records.warning import warn


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
