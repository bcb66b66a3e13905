from __future__ import annotations

import os

import pytest

from gunreal.config.schema import ConfigError
from gunreal.records.writable import check_writable


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a" * 300, "its name is too long, choose a shorter one"),
        ("a" * 300 + "/b", "choose a file in an existing, writable folder"),
        ("none/b", "choose a file in an existing, writable folder"),
        (".", "choose a file in an existing, writable folder"),
    ],
)
def test_names_that_cannot_be_written(tmp_path, name, message):
    with pytest.raises(ConfigError, match=f"^cannot write the video /.*; {message}$"):
        check_writable(tmp_path / name, "the video ")


def test_a_new_file_and_an_existing_one(tmp_path, monkeypatch):
    path = tmp_path / "a"
    check_writable(path)
    path.touch()
    check_writable(path)
    monkeypatch.setattr(os, "access", lambda name, _: name != path)
    with pytest.raises(ConfigError, match="/a; make it writable, or choose another file$"):
        check_writable(path)
