from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile

import dmlab_fixtures
import pytest
from dmlab_fixtures import ARENA, MAZE, both

from gunreal.config.schema import Config, ConfigError
from gunreal.envs import dmlab_module
from gunreal.envs.dmlab import DMLab
from gunreal.envs.make import describe
from gunreal.train import prepare

lab, opened = dmlab_fixtures.lab, dmlab_fixtures.opened  # pytest finds fixtures among a module's names


@pytest.mark.parametrize(("renderer", "ending"), [("software", "sw"), ("hardware", "hw")])
@pytest.mark.parametrize("place", ["", "runfiles"])
def test_the_engine_is_loaded_with_its_own_symbols(monkeypatch, tmp_path, renderer, ending, place):
    (tmp_path / "runfiles").mkdir()
    for name in ("libdmlab_headless_sw.so", "libdmlab_headless_hw.so", "libother.so"):
        (tmp_path / place / name).touch()
    loaded = []
    monkeypatch.setattr(ctypes, "CDLL", lambda *args: loaded.append(args))
    dmlab_module.load_engine(str(tmp_path / "runfiles"), renderer)
    mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND
    assert loaded == [(str(tmp_path / place / f"libdmlab_headless_{ending}.so"), mode)]


def test_an_engine_that_cannot_be_loaded_is_left_to_lab(tmp_path):
    (tmp_path / "libdmlab_headless_sw.so").write_text("no library")
    dmlab_module.load_engine(str(tmp_path), "software")
    with pytest.raises(OSError, match="libdmlab_headless_sw.so"):
        ctypes.CDLL(str(tmp_path / "libdmlab_headless_sw.so"))


@both
@pytest.mark.parametrize("is_closed", [True, False])
def test_temporary_files_are_removed_with_the_environment(lab, monkeypatch, tmp_path, is_closed):
    """A script may forget to close it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    env = DMLab(ARENA)
    env.reset(seed=1)
    (folder,) = set(tmp_path.iterdir()) - before
    assert folder.is_dir()
    if is_closed:
        env.close()
    del env
    gc.collect()
    assert set(tmp_path.iterdir()) == before


def test_open_files_are_counted_before_an_exact_episode(opened, monkeypatch):
    limits = []
    monkeypatch.setattr(dmlab_module.resource, "getrlimit", lambda _: (10, 100))
    monkeypatch.setattr(dmlab_module.resource, "setrlimit", lambda _, limit: limits.append(limit))
    monkeypatch.setattr(dmlab_module.os, "listdir", lambda _: ["0"] * 30)
    env = opened(ARENA, exact=True)
    env.reset(seed=1)
    env.reset(seed=2)
    assert limits == [(100, 100)]
    monkeypatch.setattr(dmlab_module.os, "listdir", lambda _: ["0"] * 40)
    with pytest.raises(ConfigError, match="leaves four files open, now 40 of at most 100; .* leave out exact"):
        env.reset(seed=3)


@pytest.mark.parametrize(
    ("level", "args", "message"),
    [
        ("standin/no_map", {}, 'RuntimeError: Failed to start environment - "no map of that name$'),
        ("standin/exits", {}, "dmlab/standin/exits cannot start an episode: Lab ended with exit code 1$"),
        ("standin/aborts", {}, "cannot start an episode: Lab was ended by SIGABRT: terminate called .*runtime_error'$"),
    ],
)
def test_errors_at_a_reset_are_found_before_anything_starts(lab, tmp_path, monkeypatch, level, args, message):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(ConfigError, match=message) as error:
        prepare(Config(env=f"dmlab/{level}", env_args=args))
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "its runfiles are not in .*; set their folder with --env_args"),
        (("sw",), "this Lab was built without libdmlab_headless_hw.so; use another renderer"),
        (("sw", "hw"), "cannot load its library: .*libdmlab_headless_hw.so.*; install what is missing"),
    ],
)
def test_the_library_of_a_renderer_is_missing(tmp_path, files, message, monkeypatch, lab):
    for name in files:
        (tmp_path / f"libdmlab_headless_{name}.so").write_text("no library")

    def refuse(*_, **__):
        raise RuntimeError("Failed to connect RL API")

    monkeypatch.setattr(lab, "Lab", refuse)
    args = {"renderer": "hardware", "runfiles": str(tmp_path)}
    with pytest.raises(ConfigError, match=f"Failed to connect RL API: {message}"):
        describe(Config(env=f"dmlab/{MAZE}", env_args=args))


@pytest.mark.parametrize(
    ("level", "twin"), [(MAZE, "NavMazeStatic"), ("nav_maze_random_goal_02", "NavMazeRandomGoal"), (ARENA, "SeekAvoid")]
)
def test_the_missing_module_has_an_equivalent(monkeypatch, level, twin):
    monkeypatch.setitem(sys.modules, "deepmind_lab", None)
    needs = f"^dmlab/{level} needs the module deepmind_lab; run pip install dmlab-gym && dmlab-gym build"
    with pytest.raises(ConfigError, match=rf'{needs}.* pip install "gunreal\[vizdoom\]" .*gunreal/{twin}-v0$'):
        describe(Config(env=f"dmlab/{level}"))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module", "deepmind_lab needs the module no_such_module"),
        ("raise ModuleNotFoundError('', name='imp')", "needs the module imp, .* use Python 3.11"),
        ("raise ModuleNotFoundError('', name='pkg_resources')", "pip install 'setuptools<81'"),
        (
            "raise ImportError('libOSMesa.so.8:\\n cannot open')",
            "cannot load the installed deepmind_lab: libOSMesa.so.8: cannot open",
        ),
    ],
)
def test_a_module_that_can_not_be_loaded(monkeypatch, tmp_path, code, message):
    (tmp_path / "deepmind_lab.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "deepmind_lab", raising=False)
    with pytest.raises(ConfigError, match=message):
        describe(Config(env=f"dmlab/{MAZE}"))
