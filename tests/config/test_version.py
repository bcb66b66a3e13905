from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import gunreal
from gunreal.cluster import node, reducer
from gunreal.config.version import VERSION

ROOT = Path(__file__).parents[2]


def test_all_files_of_a_release_have_it():
    """`setup.cfg` reads it from the module."""
    texts = [(ROOT / name).read_text() for name in ("emulator/pyproject.toml", "CITATION.cff", "docs/changelog.md")]
    found = [re.search(r'^(?:version = "|version: |## )([\d.]+)', text, re.M)[1] for text in texts]
    assert found == [VERSION] * 3 and gunreal.__version__ == VERSION
    (needed,) = re.findall(r"gunreal-emulator ~= (\S+)", (ROOT / "setup.cfg").read_text())
    assert needed == VERSION


def test_nodes_do_not_ask_for_an_installed_distribution():
    """A checkout that is not installed has none."""
    for module in (node, reducer):
        tree = ast.parse(inspect.getsource(module))
        imported = {name.name for x in ast.walk(tree) if isinstance(x, ast.Import) for name in x.names}
        assert "importlib.metadata" not in imported
    assert reducer.VERSION == VERSION
