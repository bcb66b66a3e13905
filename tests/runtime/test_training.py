"""The work of a run around its runner, and the callback of `gunreal.train`; more is seen in whole runs."""

from __future__ import annotations

import dataclasses
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import gunreal
from gunreal.config import folders
from gunreal.config.schema import Config
from gunreal.records import checkpoint
from gunreal.records.metrics import RunMetrics
from gunreal.runtime import signals, training
from gunreal.runtime.base import Contents, Status
from gunreal.runtime.training import Training


def train(folder, on_metrics, **options):
    options = {"env": "CartPole-v1", "runner": "serial", "agents": 2, "hidden": 8, "metrics_seconds": 0.01} | options
    config = gunreal.Config(**options, logdir=str(folder), name="run")
    return gunreal.train(config, show=False, on_metrics=on_metrics)


def test_a_callback_stops_the_run_in_order(tmp_path):
    """It sees each line as it is written, and the run can go on. Other answers have no effect."""
    seen, others = [], iter([1, "yes", False, np.array([1, 1])])

    def stop(line):
        seen.append(line)
        return np.True_ if line["step"] >= 40 else next(others, None)

    run = train(tmp_path, stop, steps=10**9)
    assert run.metrics == seen and seen[-1]["stopped_by"] == "callback"
    assert [line["step"] >= 40 for line in seen[:-1]] == [False] * (len(seen) - 2) + [True]
    assert checkpoint.load(run.path).step == run.step == seen[-1]["step"]
    before = len(seen)
    resumed = gunreal.resume(run, show=False, steps=run.step + 40, on_metrics=seen.append)
    assert seen[before - 1].pop("stopped_by") == "callback"  # the run has gone on
    seen[before - 1]["resumed"] = True
    assert resumed.metrics == seen and resumed.metrics[-1]["stopped_by"] == "steps"


def test_an_error_in_a_callback_ends_the_run_and_is_raised(tmp_path):
    """The last line, for which the callback is called again, is written, and nothing that was learned is lost."""
    lines = []
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, lambda line: lines.append(line) or 1 / (len(lines) < 3), steps=10**9)
    run = gunreal.load(tmp_path / "run")
    assert run.metrics[-1]["stopped_by"] == "error" and run.step == run.metrics[-1]["step"] > lines[0]["step"]


class Playing:
    """A runner that acts for `rounds` rounds of ten steps and learns nothing."""

    def __init__(self, rounds=1, **options):
        self.status = Status(Config(**options), RunMetrics(), None)
        self.rounds, self.done = rounds, []

    def run(self, tick):
        for _ in range(self.rounds):
            self.status.metrics.acted(10)
            tick()
        self.status.stop("steps")

    def snapshot(self):
        return self.status.metrics.snapshot({}, {})

    def state(self):
        return {}

    def contents(self):
        self.done.append("saved")
        return Contents({})

    def drain_episodes(self):
        self.done.append("drained")

    def close(self):
        self.done.append("closed")


def test_as_many_checkpoints_are_kept_as_asked(tmp_path):
    runner = Playing(rounds=4, keep_checkpoints=2, metrics_seconds=1e-9, checkpoint_minutes=1e-9)
    Training(runner.status.config, runner, tmp_path).run()
    assert sorted(path.name[-6:] for path in (tmp_path / "checkpoints").iterdir()) == ["30.npz", "40.npz"]


def test_the_wait_for_evaluations_is_not_training_time_and_each_has_a_line(tmp_path, monkeypatch):
    """Several may have ended since the last regular line. The run's own last line comes last."""
    runner, scores, seen = Playing(eval_steps=10), [{"eval_step": 10}, {"eval_step": 20}], []
    done = runner.done
    evaluation = SimpleNamespace(
        tick=lambda: None,
        finish=lambda: done.append("waited"),
        left=lambda: len(scores),
        take=lambda: scores.pop(0),
        close=lambda: done.append("ended"),
    )
    monkeypatch.setattr(training, "Evaluation", lambda *_: evaluation)
    monkeypatch.setattr(runner.status.metrics, "stop_clock", lambda: done.append("stopped"))
    Training(runner.status.config, runner, tmp_path, on_metrics=seen.append).run()
    assert done == ["drained", "stopped", "saved", "waited", "drained", "saved", "ended", "closed"]
    lines = [(line["step"], line["eval_step"], line.get("stopped_by")) for line in seen]
    assert lines == [(10, 10, None), (10, 20, "steps")]


def test_trackers_are_closed_when_nothing_else_is_left(tmp_path, monkeypatch):
    """They may wait for their network. Nothing that goes wrong before leaves them open."""
    runner = Playing()
    monkeypatch.setattr(runner, "close", lambda: 1 / 0)
    run = Training(runner.status.config, runner, tmp_path)
    monkeypatch.setattr(run._writer, "close", lambda: runner.done.append("writer"))
    with pytest.raises(ZeroDivisionError):
        run.run()
    assert runner.done[-1] == "writer"


@pytest.mark.parametrize("signals_before", [0, 1])
def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(tmp_path, monkeypatch, signals_before):
    """Other interrupts, such as one that the caller's function raises, end a run in order."""
    runner = Playing()

    def run(tick):
        runner.status.metrics.acted(10)
        for _ in range(signals_before):
            signal.raise_signal(signal.SIGINT)
        assert runner.status.stopped_by == "SIGINT" * signals_before
        if signals_before:
            signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(signals, "_AT_ONCE", -1.0)
    with signals.handled() as interruption, pytest.raises(KeyboardInterrupt):
        interruption.stops(runner.status.stop)
        Training(runner.status.config, runner, tmp_path).run()
    assert runner.done == [*["drained", "saved"] * (not signals_before), "closed"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == (not signals_before)


def test_the_first_reason_for_an_end_is_kept():
    status = Playing().status
    assert status.stopped_by == ""
    status.stop("SIGTERM")
    status.fail(ZeroDivisionError("one"))
    status.fail(KeyError("two"))
    assert status.stopped_by == "SIGTERM" and isinstance(status.failure, ZeroDivisionError)


def test_what_a_cluster_chooses_later_is_saved(tmp_path):
    """When its machines are known."""
    given = Config(runner="cluster", address="auto", logdir=str(tmp_path), name="run")
    path = folders.prepare_run_dir(given)
    runner = Playing()
    runner.status.config = given
    run = Training(given, runner, path)
    runner.status.config = dataclasses.replace(given, nodes=3, reducers=2)
    run.run()
    assert "[used]\nnodes = 3\nreducers = 2\n" in (path / "config.toml").read_text()
    assert folders.saved_config(path) == given and checkpoint.load(path).extra["config"]["nodes"] == 3
