from __future__ import annotations

import inspect

import cluster_rounds
import numpy as np
import pytest
from ray_standin import Engine

from gunreal.cluster import coordinator
from gunreal.cluster.node import Node


class Closable(Engine):
    def close(self):
        pass


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


@pytest.mark.parametrize("name", ["start", "gradient", "gauges", "stop"])
def test_sleeping_nodes_are_called_as_nodes(name):
    sleeper, node = (inspect.signature(getattr(kind, name)).parameters for kind in (cluster_rounds.Sleeper, Node))
    assert list(sleeper) == list(node)


def test_rounds_are_measured(monkeypatch):
    """Each gradient of a sleeping node has as many slices as there are reducers."""
    monkeypatch.setattr(coordinator, "Engine", lambda config: Closable("a"))
    options = cluster_rounds.parse(["--weights", "10", "--reducers", "2", "--compute", "0.001", "--seconds", "0.2"])
    line = cluster_rounds.measure(options, 2)
    assert line["contributions"] == 2 and line["replaced"] == 0 and np.isfinite(line["grad_norm"])
