"""Weights & Biases in offline mode: what it is given, and what a resumed run keeps."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest
from training import wait_until

from gunreal.config.schema import Config, ConfigError
from gunreal.records import tracker
from gunreal.records.lines import MetricsWriter
from gunreal.runtime.evaluation import KEYS
from gunreal.train import prepare

TRACKED = Config(env="CartPole-v1", track="wandb", entropy=0.5)


@pytest.fixture
def offline(monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    wandb.teardown()  # its service would be a child of every later test


class Recorded:
    """Stands for the run that `wandb.init` returns."""

    def __init__(self):
        self.logged, self.finished, self.defined = [], 0, {}

    def define_metric(self, name, step_metric):
        self.defined[name] = step_metric

    def log(self, line):
        self.logged.append(line)

    def finish(self):
        self.finished += 1


@pytest.fixture
def stub(offline, monkeypatch):
    """`wandb.init` that keeps its arguments and starts nothing."""
    import wandb

    found = SimpleNamespace(run=Recorded(), given=[])

    def init(**options):
        found.given.append(options)
        return found.run

    monkeypatch.setattr(wandb, "init", init)
    return found


def test_a_run_in_offline_mode(offline, tmp_path):
    """The package's own files appear in the run's folder, and hold the values."""
    with closing(MetricsWriter(tmp_path, 0, tracker.Tracker(TRACKED, tmp_path))) as writer:
        writer.write({"step": 10, "score_mean": 12345.678, "wait_ms": None})
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    # Its service may write a little later.
    wait_until(lambda: b"score_mean" in (data := file.read_bytes()) and b"12345.678" in data)


def test_tracked_values(stub, tmp_path):
    opened = tracker.Tracker(TRACKED, tmp_path)
    (given,) = stub.given
    assert given["project"] == "gunreal" and given["name"] == tmp_path.name and given["config"]["entropy"] == 0.5
    at, *evaluated = KEYS
    assert stub.run.defined == {"*": "step"} | dict.fromkeys(evaluated, at)
    opened.add({"step": 10, "score_mean": 1.0, "wait_ms": None})
    assert stub.run.logged == [{"step": 10, "score_mean": 1.0}]
    opened.close()
    opened.close()
    assert stub.run.finished == 1
    tracker.Tracker(TRACKED, tmp_path)  # as after a resume
    assert stub.given[1]["id"] == given["id"] and given["resume"] == "allow"


def test_a_line_that_cannot_be_sent_is_reported_and_the_run_goes_on(stub, tmp_path, monkeypatch, capsys):
    import wandb

    def refuse(line):
        raise wandb.Error("the run was deleted")

    monkeypatch.setattr(stub.run, "log", refuse)
    with closing(MetricsWriter(tmp_path, 0, tracker.Tracker(TRACKED, tmp_path))) as writer:
        for step in (1, 2):
            writer.write({"step": step})
    warning = capsys.readouterr().err
    assert "Weights & Biases: the run was deleted; " in warning and warning.count("\n") == 1


def test_a_refusal_is_one_line_and_leaves_nothing(offline, tmp_path, monkeypatch):
    import wandb

    def refuse(**_):
        raise wandb.errors.UsageError("api_key not configured\n(no-tty)")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ConfigError, match=r"^--track wandb: api_key not configured \(no-tty\); run wandb login, or"):
        tracker.Tracker(TRACKED, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_missing_package_is_found_before_anything_starts(monkeypatch):
    """Also beside a folder of this name, which the package writes: Python could import it."""
    find, folder = importlib.util.find_spec, ModuleSpec("wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *of: folder if name == "wandb" else find(name, *of))
    with pytest.raises(ConfigError, match=r'^--track wandb needs the package wandb; run pip install "gunreal.wandb."$'):
        prepare(TRACKED)
