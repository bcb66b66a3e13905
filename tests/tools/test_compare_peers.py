"""Comparing with other systems: arithmetic, the rounds, absent and failing peers, and what a measurement sees."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import compare_peers
import psutil
import pytest
from measuring import gauge
from peers import speed
from peers.table import PEERS, settings
from training import is_gone, wait_until

ROOT = Path(__file__).parents[2]


def interpreter(path, drive="", probe=""):
    """A stand-in for the interpreter of a virtual environment: its sb3 imports by `probe` and trains by `drive`."""
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys, time\n"
        f"sys.path.insert(0, {str(ROOT / 'tools')!r})\n"
        "import train_peer\n"
        "from peers import table\n"
        "def sb3(progress, *, envs=32):\n"
        f"{textwrap.indent(drive or 'pass', '    ')}\n"
        "table.PEERS['sb3'] = table.PEERS['sb3']._replace(drive=sb3, modules=(), packages=('psutil',))\n"
        "if '--progress' not in sys.argv:\n"
        f"{textwrap.indent(probe or 'pass', '    ')}\n"
        "train_peer.main(sys.argv[2:])\n"
    )
    path.chmod(0o755)
    return str(path)


STEADY = """
steps = 0
while progress.report(steps):
    steps += envs
    until = time.process_time() + 0.005
    while time.process_time() < until:
        pass
"""


def command(*words):
    return [sys.executable, str(ROOT / "tools/compare_peers.py"), "--cores", "1", *words]


def run(*words):
    return subprocess.run(command(*words), capture_output=True, text=True)


QUICK = ("--seconds", "0.3", "--warmup", "0.1")


def rounds(rate, cpu_ms, memory, others=0.0):
    return {"rate": rate, "cpu_ms": cpu_ms, "memory": memory, "others": others}


def test_ratios_are_to_the_fastest_system_that_is_not_ours():
    results = {
        "gunreal": {"title": "G", "is_ours": True, "rounds": [rounds(1700.0, 1.0, 9e8), rounds(1900.0, 1.2, 9e8)]},
        "sb3": {"title": "S", "is_ours": False, "rounds": [rounds(1000.0, 1.8, 5e8), rounds(1100.0, 2.2, 7e8)]},
        "sf": {"title": "F", "is_ours": False, "rounds": [rounds(1200.0, 1.6, 1e9), rounds(1200.0, 1.6, 2e9)]},
        "sb3:envs=9": {"title": "S", "is_ours": False, "rounds": [rounds(9999.0, 1.0, 1.0)], "failed": "crashed"},
        "sf:envs=9": {"title": "F", "is_ours": False, "absent": "not there"},
    }
    best = speed.summarize(results)
    assert best == "sf"
    assert results["gunreal"]["median"] == rounds(1800.0, 1.1, 9e8)
    assert results["gunreal"]["ratio"] == pytest.approx({"rate": 1.5, "cpu_ms": 1.1 / 1.6, "memory": 0.6})
    assert results["sb3"]["ratio"] == pytest.approx({"rate": 1050 / 1200, "cpu_ms": 1.25, "memory": 0.4})
    assert results["sf"]["ratio"] == {"rate": 1.0, "cpu_ms": 1.0, "memory": 1.0}
    assert "median" not in results["sb3:envs=9"] and "median" not in results["sf:envs=9"]

    lines = speed.table(results, best).splitlines()
    assert lines[1].split() == ["gunreal", "1,800", "1.50", "1.10", "0.69", "900", "0.60", "0"]
    assert lines[4:] == [
        "best peer (the fastest other system): sf",
        "sb3:envs=9 (S) failed: crashed",
        "sf:envs=9 (F) absent: not there",
    ]


def test_contestants_have_their_settings_and_interpreters():
    words = ["--peers", "gunreal,gunreal-tasks:min_batch=160,sb3:threads=1:processes=0,sf", "--python", "sf=/bin/sh"]
    _, found = compare_peers.parse([*words, "--", "--agents", "16"])
    assert found[0].settings == {"flags": ["--agents", "16"]}
    assert found[1].settings == {"flags": ["--tasks=pc,vr,rp", "--agents", "16", "--min_batch=160"]}
    assert found[2].settings == {"threads": 1, "processes": False} and found[3].settings == {}
    assert [contestant.python for contestant in found] == [sys.executable] * 3 + ["/bin/sh"]
    assert [contestant.peer.is_ours for contestant in found] == [True, True, False, False]
    assert set(found[2].settings) < set(settings(PEERS["sb3"].drive))


def test_installed_systems_are_measured_and_missing_ones_are_named(tmp_path):
    python = interpreter(tmp_path / "python", STEADY)
    missing = interpreter(tmp_path / "missing", probe="raise ModuleNotFoundError('No module named sample_factory')")
    out = tmp_path / "out.json"
    words = ["--peers", "sb3,sf,sb3:envs=64", "--rounds", "2", "--json", str(out), *QUICK]
    done = run(*words, "--python", f"sb3={python}", "--python", f"sf={missing}")
    assert done.returncode == 0, done.stderr
    assert "sf (Sample Factory APPO) absent: ModuleNotFoundError: No module named sample_factory" in done.stdout
    assert "pip install torch sample-factory" in done.stdout

    found = json.loads(out.read_text())
    systems = found["systems"]
    assert list(systems) == ["sb3", "sf", "sb3:envs=64"] and found["cores"] == 1
    assert found["best_peer"] in ("sb3", "sb3:envs=64")
    for label, envs in (("sb3", 32), ("sb3:envs=64", 64)):
        row = systems[label]
        assert row["settings"]["envs"] == envs and row["versions"]["psutil"] == psutil.__version__
        assert len(row["rounds"]) == 2
        for one in row["rounds"]:
            assert one["steps"] % envs == 0 and one["rate"] == pytest.approx(one["steps"] / one["seconds"])
            assert one["seconds"] >= 0.3 and one["memory"] > 1e6 and one["others"] >= 0
        median = row["median"]["rate"]
        assert median == pytest.approx(sum(one["rate"] for one in row["rounds"]) / 2)
        assert row["ratio"]["rate"] == pytest.approx(median / systems[found["best_peer"]]["median"]["rate"])


def test_a_peer_that_fails_is_reported_and_the_others_go_on(tmp_path):
    broken = interpreter(tmp_path / "python", "progress.report(1)\nraise RuntimeError('out of luck')")
    out = tmp_path / "out.json"
    tiny = ["--env", "gunreal/Catch-v0", "--agents", "4", "--min_batch", "40", "--hidden", "32"]
    words = ["--peers", "sb3,gunreal", "--rounds", "1", "--json", str(out), *QUICK, "--python", f"sb3={broken}"]
    done = run(*words, "--", *tiny)
    assert done.returncode == 1, done.stderr
    assert "failed: ended with code 1: RuntimeError: out of luck" in done.stdout
    ours = json.loads(out.read_text())["systems"]["gunreal"]  # the real thing
    assert ours["median"]["rate"] > 0 and ours["median"]["processes"] >= 2
    assert ours["settings"] == {"flags": tiny} and "ratio" not in ours


BUSY = """
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print(child.pid, file=open({pid!r}, "w"), flush=True)
steps = 0
while progress.report(steps):
    steps += 100
    time.sleep(0.05)
"""


def gauged(tmp_path, drive):
    python = interpreter(tmp_path / "python", drive)
    return gauge.Gauge([python, "train_peer.py", "sb3"], tmp_path)


def test_the_processes_of_a_peer_count_and_end_with_it(tmp_path):
    pid = tmp_path / "pid"
    with gauged(tmp_path, BUSY.format(pid=str(pid))) as meter:
        found = meter.measure(0.1, 1.0)
    assert found["processes"] == 2 and found["steps"] % 100 == 0
    assert found["cpu_ms"] * found["steps"] / 1000 > 0.02  # the child's: the parent sleeps
    wait_until(lambda: is_gone(int(pid.read_text())))


def test_a_peer_without_progress_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(gauge, "PATIENCE", 2.0)
    monkeypatch.setattr(gauge, "GRACE", 0.1)
    meter = gauged(tmp_path, "print('waiting for Godot', flush=True)\ntime.sleep(60)")
    with pytest.raises(gauge.Failed, match="made no progress for 2 s: waiting for Godot"), meter:
        wait_until(lambda: b"Godot" in (tmp_path / "log").read_bytes())
        meter.measure(0.0, 1.0)
    assert not psutil.pid_exists(meter._popen.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_nothing_running(tmp_path, number):
    pid = tmp_path / "pid"
    python = interpreter(tmp_path / "python", BUSY.format(pid=str(pid)))
    words = command("--peers", "sb3", "--seconds", "60", "--python", f"sb3={python}")
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: pid.exists() and pid.read_text())
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 130 and error == "compare_peers.py: interrupted\n"
    wait_until(lambda: is_gone(int(pid.read_text())))
