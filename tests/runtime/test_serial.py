"""Serial runs follow from their seed and go on exactly; in processes of their own, for TensorFlow's determinism."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from trained import short_run
from training import Training

import gunreal
from gunreal.config.schema import Config
from gunreal.records import checkpoint, metrics
from gunreal.train import main

# Each run whole, and stopped by SIGTERM in the middle of rollouts. Another process resumes those that were stopped.
PROGRAM = """
import os, signal, sys
import gunreal
from gunreal.records.metrics import RunMetrics

acted = RunMetrics.acted

def acted_and_stopped(self, steps):
    acted(self, steps)
    if self.step >= stop_at:
        os.kill(os.getpid(), signal.SIGTERM)

for name, (config, stop_at) in eval(sys.argv[2]).items():
    if sys.argv[1] == "resume":
        gunreal.resume(f"{name}-stopped", show=False)
        continue
    RunMetrics.acted = acted
    gunreal.train(gunreal.Config(name=f"{name}-whole", **config), show=False)
    RunMetrics.acted = acted_and_stopped
    gunreal.train(gunreal.Config(name=f"{name}-stopped", **config), show=False)
"""

COMMON = {"runner": "serial", "metrics_seconds": 1000.0, "hidden": 32, "min_batch": 40, "replay_size": 100}
CARTPOLE = COMMON | {"env": "CartPole-v1", "tasks": ("vr", "rp"), "agents": 6, "agents_per_process": 3, "t_max": 7}
BREAKOUT = COMMON | {"env": "ALE/Breakout-v5", "tasks": ("pc", "vr", "rp"), "agents": 3}

# A resumed LSTM has to find its state, and the action and reward before it, and a task its draws, averages and state.
CATCH = COMMON | {"env": "gunreal/Catch-v0", "tasks": ("pc", "rich_task:Rich"), "agents": 3, "network": "lstm"}
CATCH |= {"frame_stack": 1, "t_max": 7}
RUNS = {  # with the step at which they are stopped
    "CartPole": (CARTPOLE | {"steps": 900}, 431),
    "Breakout": (BREAKOUT | {"steps": 260}, 140),
    "Catch-lstm-vtrace": (CATCH | {"steps": 260}, 140),
}


def last_line(folder, name):
    line = metrics.read(folder / "runs" / name / metrics.FILE)[-1]
    keys = ("step", "trained", "updates", "episodes", "score_mean", "weights_sha256", "stopped_by")
    return {key: line[key] for key in keys}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of the runs, and the last lines of those that were stopped, from before they were resumed."""
    folder, before = tmp_path_factory.mktemp("serial"), {}
    (folder / "program.py").write_text(PROGRAM)
    for what in ("train", "resume"):
        with Training(folder, what, repr(RUNS), name=what, program=("program.py",)) as run:
            assert run.end() == 0, run.stderr
        before = before or {name: last_line(folder, f"{name}-stopped") for name in RUNS}
    return folder, before


@pytest.mark.parametrize("name", RUNS)
def test_same_seed_same_weights_stopped_or_not(runs, name):
    (folder, before), (config, stop_at) = runs, RUNS[name]
    whole, stopped = last_line(folder, f"{name}-whole"), before[name]
    assert whole["stopped_by"] == "steps" and whole["step"] >= config["steps"] and whole["updates"] >= 5
    assert stopped["stopped_by"] == "SIGTERM" and stop_at <= stopped["step"] < stop_at + config["agents"]
    assert stopped["weights_sha256"] != whole["weights_sha256"]
    blob = checkpoint.load(folder / "runs" / f"{name}-whole").blobs["serial"]
    assert "sequences" in json.loads(blob)["workers"][0]["groups"][0]  # no names of classes: they may move
    assert last_line(folder, f"{name}-stopped") == whole, json.dumps(stopped)


def test_a_small_budget_can_be_raised(tmp_path):
    """A batch of a small budget is smaller, and so is the number of rollouts that may wait for it."""
    config = Config(env="gunreal/Catch-v0", runner="serial", agents=4, t_max=5, min_batch=80, hidden=16, steps=60)
    run = gunreal.train(dataclasses.replace(config, logdir=str(tmp_path), name="run"), show=False)
    assert run.metrics[-1]["updates"] == 0
    lines: list[dict] = []
    options = {"metrics_seconds": 0.5, "on_metrics": lambda line: lines.append(line) or len(lines) > 200}
    gunreal.resume(run.path, steps=400, show=False, **options)
    assert lines[-1]["stopped_by"] == "steps" and lines[-1]["updates"] > 0


def test_rings_that_do_not_fit_are_one_line(tmp_path, capfd):
    """A task's targets may change between a run and its resumption."""
    run = short_run(tmp_path, "run", steps=40, tasks=("pc",))
    saved = checkpoint.load(run.path)
    state = saved.state | {"ring0/pc:action": np.zeros(3, np.int32)}
    checkpoint.save(run.path, saved.step, state, saved.extra, saved.blobs)
    before = run.metrics
    assert before[-1].pop("stopped_by") == "steps"  # the last line is now another one
    before[-1]["resumed"] = True
    capfd.readouterr()
    assert main(["train", "--resume", str(run.path), "--steps", "80"]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "pc:action has another shape; install the former version" in err
    assert gunreal.load(run.path).metrics[:-1] == before
