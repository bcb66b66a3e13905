from __future__ import annotations

import ast
import configparser
import inspect
from pathlib import Path

import gunreal
from gunreal.cluster import node, reducer
from gunreal.config.version import VERSION

ROOT = Path(__file__).parents[2]


def test_it_is_that_of_the_distribution():
    packaging = configparser.ConfigParser()
    packaging.read(ROOT / "setup.cfg")
    assert packaging["metadata"]["version"] == VERSION == gunreal.__version__


def test_nodes_do_not_ask_for_an_installed_distribution():
    """A checkout that is not installed has none."""
    for module in (node, reducer):
        tree = ast.parse(inspect.getsource(module))
        imported = {name.name for x in ast.walk(tree) if isinstance(x, ast.Import) for name in x.names}
        assert "importlib.metadata" not in imported
    assert reducer.VERSION == VERSION
