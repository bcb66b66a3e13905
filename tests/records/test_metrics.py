from __future__ import annotations

import json
import math
import os
import time
from contextlib import closing

import numpy as np
import pytest

from gunreal.config.schema import ConfigError
from gunreal.records.lines import MetricsWriter
from gunreal.records.metrics import FILE, RunMetrics, read

GAUGES = {"agents": 32, "predictors": 2, "trainers": 1, "memory_bytes": 10, "memory_limit": 100, "wait_ms": 2.5}


def metrics(**kwargs) -> RunMetrics:
    return RunMetrics(("base", "pc"), ("pc", "rp"), **kwargs)


def snapshot(m: RunMetrics, seconds: float) -> dict:
    return m.snapshot(GAUGES, {"base": 3, "pc": 0, "train": 7}, m._start + seconds)


def test_a_line_before_anything_happened_has_all_keys():
    line = snapshot(metrics(), 10)
    expected = {"step", "seconds", "pps", "tps", "score_mean", "score_max", "trained", "updates", "episodes", "skipped"}
    expected |= {"restarts", "policy_lag", "policy_lag_max", *GAUGES, "learning_rate", "entropy", "grad_norm"}
    expected |= {f"{kind}_{name}" for kind in ("queue", "batch") for name in ("base", "pc", "train")}
    expected |= {f"loss_{name}" for name in ("total", "policy", "value", "pc", "rp")}
    expected |= {"value_mean", "return_mean", "return_deviation"}
    assert set(line) == expected
    assert {line[name] for name in ("score_mean", "score_max", "policy_lag", "loss_pc", "batch_base")} == {None}
    assert (line["step"], line["pps"], line["queue_train"], line["agents"], line["wait_ms"]) == (0, 0, 7, 32, 2.5)
    json.dumps(line, allow_nan=False)


def test_rates_and_means_are_of_the_interval_and_counts_of_the_run():
    m = metrics()
    for size in (8, 16):
        m.acted(size)
        m.predicted("base", size)
    m.trained(160, [0, 2], {"loss_pc": 1.0, "entropy": 1.5, "learning_rate": 0.7})
    m.trained(200, np.array([4]), {"loss_pc": 4.0, "entropy": 0.5, "learning_rate": 0.6})
    line = snapshot(m, 10)
    assert (line["step"], line["seconds"], line["pps"], line["tps"]) == (24, 10, 2.4, 36)
    assert (line["batch_base"], line["batch_pc"], line["batch_train"]) == (12, None, 180)
    assert (line["loss_pc"], line["entropy"], line["learning_rate"]) == (2.5, 1.0, 0.6)
    assert (line["policy_lag"], line["policy_lag_max"]) == (2, 4)
    m.acted(6)
    m.trained(40, [1], {"loss_pc": 3.0})
    m.restarted()
    line = snapshot(m, 13)
    assert (line["step"], line["seconds"], line["pps"]) == (30, 13, 2)
    assert (line["trained"], line["updates"], line["restarts"], m.steps_trained) == (400, 3, 1, 400)
    assert (line["loss_pc"], line["policy_lag_max"], line["batch_base"]) == (3, 1, None)
    assert (line["entropy"], line["learning_rate"]) == (None, 0.6)


def test_updates_that_are_not_finite_are_counted_and_in_no_mean():
    m = metrics()
    m.trained(20, [0], {"loss_pc": 2.0, "grad_norm": 1.0})
    m.trained(20, [0], {"loss_pc": math.nan, "grad_norm": math.inf}, skipped=True)
    line = snapshot(m, 1)
    assert (line["loss_pc"], line["grad_norm"], line["skipped"], line["updates"]) == (2.0, 1.0, 1, 2)


def test_scores_are_of_the_last_100_episodes():
    m = metrics()
    for _ in range(9):
        m.episode(1000.0)
        assert m.score_mean() is None  # no checkpoint is called the best for a few lucky episodes
    m.episode(1000.0)
    assert m.score_mean() == 1000.0
    for score in range(100):
        m.episode(score)
    line = snapshot(m, 1)
    assert (line["score_mean"], line["score_max"], line["episodes"]) == (49.5, 99, 110)
    assert m.score_mean() == 49.5


def test_a_stopped_clock_stands_still(monkeypatch):
    m = metrics()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 7)
    m.stop_clock()
    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    assert m.state()["seconds"] == pytest.approx(7, abs=1)
    assert m.snapshot({}, {})["seconds"] == pytest.approx(7, abs=1)


def test_state_goes_on():
    m = metrics()
    m.acted(1000)
    m.trained(20, [0], {}, skipped=True)
    m.episode(3.0)
    state = json.loads(json.dumps(m.state()))
    resumed = metrics(state=state | {"seconds": 50.0})
    resumed.acted(10)
    line = snapshot(resumed, 5)
    assert (line["step"], line["seconds"], line["pps"], line["score_mean"]) == (1010, 55, 2, 3)
    assert (line["trained"], line["updates"], line["skipped"], line["episodes"]) == (20, 1, 1, 1)


def test_what_another_process_takes_is_added_once():
    node, whole = metrics(), metrics()
    for lags, scores, largest in (([7, 7, 7], (1.0, 2.0), 7), ([3], (6.0,), 3), ([], (), None)):
        if lags:
            node.trained(20, lags, {"loss_pc": float(lags[0])})
        for score in scores:
            node.episode(score)
        taken = node.take()
        assert taken["lag_max"] == largest
        whole.add(taken)
    line = snapshot(whole, 1)
    assert (line["episodes"], line["score_mean"], line["trained"], line["updates"]) == (3, 3.0, 40, 2)
    assert (line["policy_lag"], line["policy_lag_max"], line["loss_pc"]) == (6, 7, 5.0)


def test_lines_are_written_at_once_and_nan_is_null(tmp_path):
    with closing(MetricsWriter(tmp_path)) as writer:
        writer.write({"step": 1, "a": math.nan, "b": np.float32(0.5), "c": None, "d": -math.inf, "e": np.int64(3)})
        assert read(tmp_path / FILE) == [{"step": 1, "a": None, "b": 0.5, "c": None, "d": None, "e": 3}]
        writer.write({"step": 2, "weights_sha256": "00ff", "stopped_by": "steps"})
    assert read(tmp_path / FILE)[1] == {"step": 2, "weights_sha256": "00ff", "stopped_by": "steps"}


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / FILE
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    assert read(path) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 1}\n{"step": 2}')
    assert read(path) == [{"step": 1}, {"step": 2}]
    path.write_text("")
    assert read(path) == []


def test_a_resumed_run_drops_lines_of_later_steps(tmp_path):
    with closing(MetricsWriter(tmp_path)) as writer:
        for step in (10, 20, 30):
            writer.write({"step": step})
    with open(tmp_path / FILE, "a") as file:
        file.write('{"step": 4')
    with closing(MetricsWriter(tmp_path, step=20)) as writer:
        writer.write({"step": 25})
    assert [line["step"] for line in read(tmp_path / FILE)] == [10, 20, 25]
    assert not list(tmp_path.glob("*.tmp"))


def test_lines_are_dropped_at_once_or_not_at_all(tmp_path, monkeypatch):
    with closing(MetricsWriter(tmp_path)) as writer:
        for step in (10, 20):
            writer.write({"step": step})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        MetricsWriter(tmp_path, step=10)
    assert [line["step"] for line in read(tmp_path / FILE)] == [10, 20]


def test_an_unwritable_folder_is_reported_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot write to .*/none/metrics\.jsonl: .*/none and its files writable$"):
        MetricsWriter(tmp_path / "none")
    for text, reason in (
        ("no json\n{}\n", "line 1 is not valid JSON"),
        ('\n{"step": 1}\n{"step": "un\n{"step": 2}\n', "line 3 is not valid JSON"),
        ('{"step": 1}\n{}\n', "line 2 has no step"),
        ('{"step": 1}\n{"step": null}\n', "line 2 has the step None, which is not a number"),
        ('{"step": "x"}\n', "line 1 has the step 'x', which is not a number"),
    ):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(ConfigError, match=f"metrics.jsonl is damaged: {reason}; remove that line$"):
            MetricsWriter(tmp_path)


def test_own_metrics_of_tasks_and_objectives_stay_in_all_later_lines():
    m = metrics()
    assert "rp_accuracy" not in snapshot(m, 10)
    m.trained(4, [], {"rp_accuracy": 0.5, "loss_rp": 1.0, "clipped": 0.1})
    m.trained(4, [], {"rp_accuracy": 1.0})
    line = snapshot(m, 20)
    assert (line["rp_accuracy"], line["clipped"]) == (0.75, 0.1)
    assert snapshot(m, 30)["rp_accuracy"] is None


@pytest.mark.parametrize(
    ("scalars", "what"),
    [
        ({"loss_total": math.nan, "loss_rp": math.nan, "loss_pc": 0.1, "grad_norm": math.nan}, "loss_rp is"),
        ({"loss_total": 1.0, "grad_norm": math.inf}, "grad_norm is"),
        ({"loss_total": 1.0, "grad_norm": 1.0}, "an observation is"),
    ],
)
def test_the_first_skipped_update_is_explained(capsys, scalars, what):
    m = metrics()
    m.trained(4, [], {"loss_total": 1.0})
    for _ in range(2):
        m.trained(4, [], scalars, skipped=True)
    assert capsys.readouterr().err == f"gunreal: an update is skipped, because {what} not finite\n"
