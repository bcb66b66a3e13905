"""The callback of `gunreal.train`, and the last lines; the rest is seen in whole runs (test_train.py)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import gunreal
from gunreal.records import checkpoint
from gunreal.runtime.ticker import Ticker


def train(folder, on_metrics, **options):
    options = {"env": "CartPole-v1", "serial": True, "agents": 2, "hidden": 8, "metrics_seconds": 0.01} | options
    config = gunreal.Config(**options, logdir=str(folder), name="run")
    return gunreal.train(config, show=False, on_metrics=on_metrics)


@pytest.mark.parametrize("answer", [True, np.True_])
def test_a_callback_stops_the_run_in_order(tmp_path, answer):
    """It sees each line as it is written, and the run can go on."""
    seen = []

    def stop(line):
        seen.append(line)
        return answer if line["step"] >= 40 else None

    run = train(tmp_path, stop, steps=10**9)
    assert run.metrics == seen and seen[-1]["stopped_by"] == "callback"
    assert [line["step"] >= 40 for line in seen[:-1]] == [False] * (len(seen) - 2) + [True]
    assert checkpoint.load(run.path).step == run.step == seen[-1]["step"]
    before = len(seen)
    resumed = gunreal.resume(run, show=False, steps=run.step + 40, on_metrics=seen.append)
    assert seen[before - 1].pop("stopped_by") == "callback"  # the run has gone on
    seen[before - 1]["resumed"] = True
    assert resumed.metrics == seen and resumed.metrics[-1]["stopped_by"] == "steps"


def test_other_answers_have_no_effect(tmp_path):
    answers = iter([1, "yes", False, np.array([1, 1])])
    assert train(tmp_path, lambda line: next(answers, None), steps=100).metrics[-1]["stopped_by"] == "steps"


def test_an_error_in_a_callback_ends_the_run_and_is_raised(tmp_path):
    """The last line, for which the callback is called again, is written."""
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, lambda line: 1 / 0, steps=10**9)
    assert gunreal.load(tmp_path / "run").metrics[-1]["stopped_by"] == "error"


def test_the_wait_for_an_evaluation_is_not_training_time():
    done = []
    system = SimpleNamespace(
        config=gunreal.Config(),
        resumed=None,
        in_haste=False,
        drain_episodes=lambda: done.append("drained"),
        metrics=SimpleNamespace(stop_clock=lambda: done.append("stopped")),
    )
    ticker = Ticker(system, SimpleNamespace(save=lambda: done.append("saved")), None)
    ticker._evaluation = SimpleNamespace(finish=lambda: done.append("waited"))
    ticker.wait()
    assert done == ["drained", "stopped", "saved", "waited"]


def test_the_scores_of_every_evaluation_are_in_a_line():
    """Several may have ended since the last regular line. The run's own last line comes last."""
    written, seen = [], []

    def write(line):
        written.append(line)
        return line

    system = SimpleNamespace(
        config=gunreal.Config(),
        resumed=None,
        writer=SimpleNamespace(write=write),
        finish=lambda line: write(line | {"stopped_by": "steps"}),
    )
    ticker = Ticker(system, SimpleNamespace(snapshot=lambda: {"step": 30}), None, seen.append)
    scores = [{"eval_step": 10}, {"eval_step": 20}]
    ticker._evaluation = SimpleNamespace(left=lambda: len(scores), take=lambda: scores.pop(0))
    ticker.finish()
    assert written == seen == [{"step": 30, "eval_step": 10}, {"step": 30, "eval_step": 20, "stopped_by": "steps"}]
