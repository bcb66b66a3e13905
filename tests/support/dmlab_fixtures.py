"""What the tests of DeepMind Lab share: the module or its stand-in, and environments that are closed in the end."""

from __future__ import annotations

import sys

import dmlab_standin
import pytest

from gunreal.envs.dmlab import DMLab
from gunreal.envs.dmlab_levels import Options
from gunreal.envs.dmlab_module import load_engine

MAZE, ARENA = "nav_maze_static_01", "seekavoid_arena_01"
COMPILED = "contributed/dmlab30/explore_goal_locations_small"
SHORT = {"episodeLengthSeconds": "2"}  # 30 agent steps
both = pytest.mark.parametrize("lab", ["stand-in", pytest.param("real", marks=pytest.mark.dmlab)], indirect=True)


@pytest.fixture
def lab(request, monkeypatch, tmp_path):
    """The module, which the environments then import; where nothing else is asked for, the stand-in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if getattr(request, "param", "stand-in") == "real":
        module = pytest.importorskip("deepmind_lab")
        load_engine(module.runfiles_path(), "software")  # some tests open Lab themselves, beside TensorFlow
        yield module
        return
    monkeypatch.setattr(dmlab_standin, "_runfiles", dmlab_standin.runfiles_path())  # put back afterward
    monkeypatch.setitem(sys.modules, "deepmind_lab", dmlab_standin)
    folder = tmp_path / "importable"  # by other processes
    folder.mkdir()
    (folder / "deepmind_lab.py").write_text("from dmlab_standin import *\n")
    monkeypatch.syspath_prepend(folder)
    yield dmlab_standin


@pytest.fixture
def opened(lab):
    """Opens environments, small ones if not asked otherwise, and closes them in the end."""
    found = []

    def open_level(level=MAZE, **options):
        found.append(DMLab(level, Options(**{"width": 32, "height": 24, **options})))
        return found[-1]

    yield open_level
    for env in found:
        env.close()


def spied(monkeypatch, lab):
    """The keyword arguments of every Lab from now on, with its positional ones under "args"."""
    calls, real = [], lab.Lab

    def spy(*args, **kwargs):
        calls.append({"args": args, **kwargs})
        return real(*args, **kwargs)

    monkeypatch.setattr(lab, "Lab", spy)
    return calls
