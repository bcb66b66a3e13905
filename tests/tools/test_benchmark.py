"""The benchmark's command and arithmetic, and one small measurement of the real thing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import benchmark
import pytest
from experiments import speed
from measuring import measure, summary
from training import is_gone, wait_until

from gunreal.config.schema import Config
from gunreal.learning import devices

TOOLS = Path(__file__).parents[2] / "tools"
CATCH = ["--env", "gunreal/Catch-v0", "--agents", "4", "--agents_per_process", "2", "--min_batch", "40"]


def test_task_sets():
    config = Config(tasks=("vr", "rp"), task={"vr": {"weight": 0.5}})
    default = benchmark.variants(config, "")
    assert {name: (of.tasks, of.task) for name, of in default.items()} == {
        "base": ((), {}),
        "vr,rp": (("vr", "rp"), {"vr": {"weight": 0.5}}),
    }
    assert list(benchmark.variants(Config(), "")) == ["base", "pc,vr,rp"]
    assert [of.tasks for of in benchmark.variants(config, "rp base vr").values()] == [("rp",), (), ("vr",)]
    of_tasks = {"replay_size": 100, "replay_fill": "full", "task_share": 0.5}  # which have no effect on base
    assert benchmark.variants(Config(tasks=("vr",), **of_tasks), "")["base"] == Config()
    cls = "gunreal.tasks.value_replay:ValueReplay"  # whose name is vr
    config = Config(tasks=(cls, "rp"), task={"vr": {"weight": 0.5}, "rp": {"weight": 2.0}})
    found = benchmark.variants(config, f"{cls} rp base")
    assert [of.task for of in found.values()] == [{"vr": {"weight": 0.5}}, {"rp": {"weight": 2.0}}, {}]


def test_the_limit_is_of_cores_that_are_never_idle_or_of_a_gpu():
    parts = [measure.Rate(1000.0, 0.3), measure.Rate(2000.0, 0.2), measure.Rate(500.0, 0.5)]
    assert measure.limit(*parts, cores=2) == pytest.approx(2000.0)
    assert measure.limit(*parts, cores=None) == pytest.approx(400.0)
    assert measure.limit(measure.Rate(300.0, 0.3), *parts[1:], cores=None) == pytest.approx(300.0)


def test_a_failed_measurement_says_why(monkeypatch, capsys):
    monkeypatch.setattr(measure, "_BOOT", "raise ValueError('it hurts')")
    with pytest.raises(measure.MeasurementFailed, match="^ValueError: it hurts$"):
        measure.row(Config(env="gunreal/Catch-v0"), 1.0)
    assert benchmark.main(["--env", "gunreal/Catch-v0"]) == 1
    assert capsys.readouterr().err == "benchmark.py: ValueError: it hurts\n"


def test_it_measures_base_and_tasks(tmp_path):
    out = tmp_path / "summary.json"
    words = ["--rounds", "1", "--seconds", "1", "--json", out, "--hidden", "32", *CATCH]
    words += ["--tasks", "pc,vr,rp", "--replay_size", "20000"]  # not full at the end, however fast the machine is
    command = [sys.executable, TOOLS / "benchmark.py", *words]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(out.read_text())
    assert list(found["sets"]) == ["base", "pc,vr,rp"] and found["about"]["cores"] == devices.cores()
    for name, row in found["sets"].items():
        assert min(row[key] for key in ("env", "predict", "train", "pps", "tps", "limit")) > 0
        assert row["share"] == row["pps"] / row["limit"] and row["pps"] == found["rounds"][name][0]["pps"]
        wait = row["wait"]
        assert 0 < wait["p50_ms"] <= wait["p95_ms"] and wait["mean_ms"] > 0 and 0 < wait["share"] < 1.1
        assert row["processes"] == 2 and 1 <= row["predictions"]["base"]["mean"] <= 4
        assert sum(row["predictions"]["base"]["sizes"].values()) == row["predictions"]["base"]["count"]
        assert row["cpu_ms"]["agents"] > 0 and row["alone_cpu_ms"]["train"] > 0
        assert row["memory"]["with_full_rings"] - row["memory"]["bytes"] >= (1e8 if name != "base" else 0)
        assert row["memory"]["bytes"] > 2e8
        assert row["profile"]["base"]["tensorflow_learner._Operation.__call__"] > 0 and 0 < row["profile_cost"] < 0.5
        assert row["bytes"]["gathered_predict"] >= 28_224 and "1" in row["predict_sizes"]
        assert f"{row['pps']:,.0f}" in text
        assert all(quantity.of(row) >= 0 for quantity in speed.QUANTITIES.values())  # of the papers' experiments
    pc, base = (found["sets"][name]["bytes"]["gathered_train"] for name in ("pc,vr,rp", "base"))
    assert pc > 3 * base  # three passes' worth of frames


def test_interrupted(tmp_path):
    """A Ctrl-C leaves no process: the measurement is told, and takes its agents with it."""
    command = [sys.executable, TOOLS / "benchmark.py", "--task_sets", "base", *CATCH]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        family: list = []
        me = measure.child_seconds.__globals__["psutil"].Process(process.pid)
        wait_until(lambda: len(family.clear() or family.extend(me.children(recursive=True)) or family) >= 3)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == "benchmark.py: interrupted\n"
    wait_until(lambda: all(is_gone(member.pid) for member in family))


def row(pps: float, balanced: bool = True, **more) -> dict:
    return {"pps": pps, "balanced": balanced, "gpu": False, "wait": {"p50_ms": 2 * pps}, "profile": {"base": {}}} | more


def test_medians_are_of_balanced_rounds():
    rows = [row(1.0, False), row(2.0), row(9.0, profile={"base": {"a": 0.5}}), row(4.0, wait={"p50_ms": None})]
    found = summary.medians(rows)
    assert (found["pps"], found["wait"]["p50_ms"], found["balanced"], found["rounds"]) == (4.0, 11.0, 3, 4)
    assert found["profile"]["base"]["a"] == 0.0 and found["gpu"] is False
    none = summary.medians(rows[:1])
    assert (none["pps"], none["balanced"], none["rounds"]) == (1.0, 0, 1)
