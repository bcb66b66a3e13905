from __future__ import annotations

import importlib
import sys

import pytest

from gunreal.config.packages import is_installed, package
from gunreal.config.schema import ConfigError


def test_a_folder_is_not_an_installed_package(tmp_path, monkeypatch):
    """Python takes it for a namespace package, such as the folder `wandb` that W&B writes."""
    (tmp_path / "some_folder").mkdir()
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("some_folder") and is_installed("some_package") and not is_installed("some_other")
    importlib.import_module("some_folder")  # which gives it a loader
    with pytest.raises(ConfigError, match="run pip install some-folder"):
        package("some_folder", "run pip install some-folder")
    monkeypatch.delitem(sys.modules, "some_folder")
