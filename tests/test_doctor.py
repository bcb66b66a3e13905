"""The command `gunreal doctor`: each part is one line, whatever is broken."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib import metadata

from gunreal import doctor
from gunreal.config.schema import Config

BROKEN = {"tensorflow": "import os; os.abort()", "jax": "raise ImportError('no such\\nsymbol')"}


def test_what_is_broken_is_one_line(tmp_path):
    for name, program in BROKEN.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(program)
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "temporary"), "CXX": "no-such"}
    environment.pop("KERAS_BACKEND", None)
    command = [sys.executable, "-m", "gunreal", "doctor", "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (1, "")
    page = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert page["tensorflow"] == page["speed"] == "FAILED: ended by SIGABRT"
    assert page["jax"].startswith("FAILED: ImportError: no such symbol (")
    assert page["compilers"].startswith("FAILED: FileNotFoundError: ") and "no-such" in page["compilers"]
    assert page["gunreal"] == metadata.version("gunreal") and page["Atari"].startswith("ALE/Pong-v5, emulator ")
    assert "GiB" in page["memory"] and "open files" in page["limits"] and " cores of " in page["system"]
    assert f"numpy {metadata.version('numpy')}" in page["packages"] and "matplotlib" in page["[plot]"]
    assert not list((tmp_path / "temporary").iterdir())


def test_a_part_that_hangs_is_one_line():
    assert doctor._apart(doctor.atari, patience=0.01).startswith("FAILED: no answer within 0.01 s; if the load")


def test_the_device_of_a_backend():
    """In this process, which has loaded it already."""
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    assert re.fullmatch(r"Keras 3[\d.]+ on \w+:0.*", doctor.backend(name))


def test_the_start_of_a_training_does_not_count_for_its_speed(monkeypatch):
    def train(config, *, show, on_metrics):
        assert config.tasks == ("pc",) and not show
        lines = ({"seconds": 5.0 + i, "updates": i, "step": 1200 * max(0, i - 2)} for i in range(90))
        assert any(map(on_metrics, lines)) and next(lines)["updates"] == 8

    monkeypatch.setattr(importlib.import_module("gunreal.train"), "train", train)
    rate = doctor.speed(Config(env="gunreal/Catch-v0", tasks=("pc",)), 6.0)
    assert rate == "1,000 agent steps per second on gunreal/Catch-v0 with pc"


def test_packages_that_are_missing_or_old(monkeypatch):
    needed = ["numpy>=99", "no-such-package", 'gunreal[no,plot]; extra == "all"']
    monkeypatch.setattr(metadata, "requires", lambda name: needed if name == "gunreal" else [])
    assert doctor.packages() == f"numpy {metadata.version('numpy')} (FAILED: needs >=99), no-such-package missing"
    assert doctor.packages("all") == f"gunreal {metadata.version('gunreal')} with [no] with [plot]"
