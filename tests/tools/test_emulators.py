from __future__ import annotations

import emulators
import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench --rounds 0", "--rounds is 0, but must be positive"),
        ("bench --frames 0", "--frames is 0, but must be positive"),
        ("verify --frames -5", "--frames is -5, but must be positive"),
        ("verify --seed -1", "--seed is -1, but must not be negative"),
        ("verify --games nosuch", "unknown game 'nosuch'"),
        ("verify --rounds 3", "unrecognized arguments: --rounds 3"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert emulators.main(words.split()) == 2
    out, error = capsys.readouterr()
    assert error.startswith(f"emulators.py: {message}") and error.count("\n") == 1 and out == ""
