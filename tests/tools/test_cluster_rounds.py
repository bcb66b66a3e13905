from __future__ import annotations

import cluster_rounds
import pytest


def interrupted(options, nodes):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nodes foo", "--nodes: 'foo' is not a whole number"),
        ("--nodes 2,0", "--nodes is 0, but must be positive"),
        ("--nodes 1 --quorum 3", "quorum is 3.0, but must be"),
        ("--seconds 0", "--seconds is 0, but must be positive"),
        ("--mbit -3", "--mbit is -3, but must be positive"),
        ("--weights many", "--weights: 'many' is not a whole number"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, words, message):
    monkeypatch.setattr(cluster_rounds, "measure", interrupted)
    assert cluster_rounds.main(words.split()) == 2
    out, error = capsys.readouterr()
    assert error.startswith(f"cluster_rounds.py: {message}") and error.count("\n") == 1 and out == ""


def test_options(monkeypatch):
    options = cluster_rounds.parse(["--nodes", "1", "--weights", "3M"])
    assert options.nodes == [1] and options.weights == 3_000_000
    monkeypatch.setattr(cluster_rounds, "measure", interrupted)
    assert cluster_rounds.main(["--nodes", "1"]) == 130
