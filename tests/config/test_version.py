from __future__ import annotations

import re
from pathlib import Path

import gunreal
from gunreal.config.version import VERSION

ROOT = Path(__file__).parents[2]


def test_all_files_of_a_release_have_it():
    """`setup.cfg` reads it from the module."""
    files = ("emulator/pyproject.toml", "zoo/pyproject.toml", "CITATION.cff", "docs/changelog.md")
    texts = [(ROOT / name).read_text() for name in files]
    found = [re.search(r'^(?:version = "|version: |## )([\d.]+)', text, re.M)[1] for text in texts]
    assert found == [VERSION] * 4 and gunreal.__version__ == VERSION
    texts = [(ROOT / name).read_text() for name in ("setup.cfg", "zoo/pyproject.toml")]
    assert re.findall(r"gunreal(?:-emulator)? ~= ([\d.]+)", "".join(texts)) == [VERSION] * 2
