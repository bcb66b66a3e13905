"""The benchmark's arithmetic, and one small measurement of the real thing."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_limit_adds_the_times_on_shared_cores(monkeypatch):
    benchmark = load("benchmark")
    monkeypatch.setattr(benchmark.backend, "data_format", lambda layout: "channels_last")
    assert benchmark.limit(1000.0, 2000.0, 500.0) == pytest.approx(1 / (0.001 + 0.0005 + 0.002))
    monkeypatch.setattr(benchmark.backend, "data_format", lambda layout: "channels_first")
    assert benchmark.limit(1000.0, 2000.0, 500.0) == pytest.approx(400.0)
    assert benchmark.limit(300.0, 2000.0, 500.0) == pytest.approx(300.0)


@pytest.mark.timeout(300)
def test_it_measures_base_and_tasks(tmp_path):
    out = tmp_path / "rates.json"
    flags = ["--env", "gunreal/Catch-v0", "--agents", "4", "--min_batch", "40", "--hidden", "32"]
    command = [sys.executable, "tools/benchmark.py", "--rounds", "1", "--seconds", "3", "--json", str(out), *flags]
    subprocess.run(command, check=True, cwd=ROOT)
    rates = json.loads(out.read_text())
    for name in ("base", "tasks"):
        row = rates[name]
        assert min(row[key] for key in ("env", "predict", "train", "pps")) > 0
        assert row["share"] == pytest.approx(row["pps"] / row["limit"], rel=0.5)
        assert abs(row["pps"] - row["tps"]) <= 0.05 * row["pps"]


def test_steps_to_score_waits_for_a_hundred_episodes():
    steps_to = load("steps_to_score").steps_to
    lines = [
        {"step": 10, "episodes": 2, "score_mean": 1.0},
        {"step": 20, "episodes": 100, "score_mean": 0.7},
        {"step": 30, "episodes": 150, "score_mean": 0.8},
    ]
    assert steps_to(lines, 0.8) == 30
    assert steps_to(lines, 0.9) is None
    assert steps_to([{"step": 5, "episodes": 0, "score_mean": None}], 0.0) is None
