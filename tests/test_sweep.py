"""`gunreal sweep` on trainings of a second, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from training import wait_until

from gunreal.__main__ import main
from gunreal.config import folders, sweeps
from gunreal.config.files import write
from gunreal.records import comparison, metrics

TINY = """
env = "gunreal/Catch-v0"
runner = "serial"
agents = 4
hidden = 16
frame_size = 36
min_batch = 40
metrics_seconds = 0.2
checkpoint_minutes = 0.005
seeds = 1
steps = {steps}
episodes = 3

[settings.base]

[settings.vr]
tasks = ["vr"]
task.vr.weight = 0.5
"""


@pytest.fixture
def sweep(tmp_path):
    """Starts the command on the tiny file."""

    def start(*words, steps=400):
        (tmp_path / "tiny.toml").write_text(TINY.format(steps=steps))
        command = [sys.executable, "-m", "gunreal", "sweep", "tiny.toml", *words]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def finished(sweep, code=0):
    out, err = sweep.communicate()
    assert sweep.returncode == code, out + err
    return out


def lines(path):
    return metrics.read(path / metrics.FILE) if (path / metrics.FILE).exists() else []


def test_it_trains_evaluates_and_compares_and_goes_on_after_a_kill_and_ctrl_c(tmp_path, sweep):
    base, vr = (tmp_path / "runs" / "tiny" / name for name in ("base-s1", "vr-s1"))
    killed = sweep(steps=6000)
    wait_until(lambda: len(lines(base)) > 3)
    killed.kill()
    killed.communicate()
    interrupted = sweep(steps=6000)
    wait_until(lambda: len(lines(vr)) > 3)
    interrupted.send_signal(signal.SIGINT)
    out = finished(interrupted, 130)
    assert "base-s1: finished" in out and "vr-s1: stopped" in out
    assert lines(vr)[-1]["stopped_by"] == "SIGINT"

    out = finished(sweep("--parallel", "2", "--seeds", "2", "--settings", "vr", steps=6000))
    assert "base-s1" not in out and "vr-s1: finished" in out and "vr-s2: finished" in out
    assert [comparison.read(path).resumed for path in (base, vr, vr.with_name("vr-s2"))] == [True, True, False]
    config = folders.saved_config(vr.with_name("vr-s2"))
    assert (config.tasks, config.seed, config.task["vr"]["weight"]) == (("vr",), 2, 0.5)

    (vr / comparison.EVALUATION).unlink()
    out = finished(sweep(steps=6000))
    assert "vr-s1: evaluating" in out and "running" not in out
    assert "gunreal/Catch-v0, score of evaluation" in out and "vr over base: undecided" in out
    assert len(json.loads((vr / comparison.EVALUATION).read_text())["scores"]) == 3


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A sweep whose first run has begun, according to its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY.format(steps=400))
    planned = sweeps.load("tiny.toml", {}, {}).runs[0]
    folders.prepare_run_dir(planned.config)
    write(planned.given, planned.config.logdir + "/base-s1.toml")
    return tmp_path / "runs" / "tiny" / "base-s1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("hidden = 16", "hidden = 8"), "has hidden 16, not 8"),
        (("hidden = 16", ""), "has hidden 16, not 256"),
        (("agents = 4", "agents = 4\ndiscount = 0.5"), "has discount 0.99, not 0.5"),
        (("agents = 4", "agents = 8"), "has agents 4, not 8"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(begun, capsys, change, message):
    (begun.parents[2] / "tiny.toml").write_text(TINY.format(steps=400).replace(*change))
    assert main(["gunreal", "sweep", "tiny.toml"]) == 2
    error = capsys.readouterr().err
    assert f"base-s1 {message}" in error and error.count("\n") == 1


def test_a_run_of_something_else_is_not_touched(begun, capsys):
    begun.with_name("base-s1.toml").unlink()
    assert main(["gunreal", "sweep", "tiny.toml"]) == 2
    assert "base-s1 is not a run of this sweep" in capsys.readouterr().err and (begun / "config.toml").exists()


def test_a_failed_run_is_reported(tmp_path, sweep):
    (tmp_path / "broken.py").write_text(
        "import os, gymnasium\n"
        "def make(**_):\n"
        "    if 'train' in ' '.join(os.sys.argv): raise OSError('the disk is gone')\n"
        "    return gymnasium.make('CartPole-v1')\n"
    )
    words = ("--env", "broken:make", "--settings", "base", "--steps", "100", "--episodes", "1")
    out = finished(sweep(*words), 1)
    assert "base-s1: failed with exit code" in out


def test_one_sweep_at_a_time_in_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY.format(steps=400))
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    with folders.locked(tmp_path / "runs" / "tiny"):
        assert main(["gunreal", "sweep", "--seeds", "8", "tiny.toml", "--hidden", "8"]) == 2
    assert "by another process" in capsys.readouterr().err
