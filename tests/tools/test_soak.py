from __future__ import annotations

import errno
import json
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import soak
from measuring import endurance

from gunreal.envs.step import AgentFailure
from gunreal.experience.waits import Waited


def test_a_short_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(endurance, "_EVERY", 0.5), monkeypatch.setattr(endurance, "_ALIVE", 6.0)
    monkeypatch.setattr(endurance, "FLAT", 9.0)  # its rings and the framework's pools are still filling
    flags = ["--env=gunreal/Catch-v0", "--tasks=pc,vr,rp", "--agents=4", "--agents_per_process=4", "--replay_size=60"]
    flags += ["--min_batch=80"]
    code = soak.main(
        ["--minutes=0.15", f"--json={tmp_path / 'soak.json'}", "--scheduler=annealing", "--scheduler_seconds=1", *flags]
    )
    said = capsys.readouterr().out
    assert code == 0 and "requests: all answered" in said and "left behind: nothing" in said, said
    looks = json.loads((tmp_path / "soak.json").read_text())["looks"]
    assert looks[-1]["steps"] > looks[0]["steps"] and all(look["total"] > look["server"] > 0 for look in looks)
    assert len({(look["processes"], look["predictors"], look["trainers"]) for look in looks}) > 1


def test_processes_that_were_there_before_are_not_left_behind(monkeypatch):
    looks = [{"server": 1.0, "agent": 1.0}]
    started = []

    def watched(config, watch):
        started.append(subprocess.Popen(["sleep", "60"]))
        return None, SimpleNamespace(looks=looks, groups={})

    monkeypatch.setattr(endurance.measure, "watched", watched)
    started.append(subprocess.Popen(["sleep", "60"]))
    try:
        assert endurance.soak(None, 1.0)["left"] == [f"process {started[1].pid}"]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AgentFailure("agents 0 to 3 ended 3 times:\nTraceback\nValueError: it hurts"), "ValueError: it hurts"),
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_run_that_fails_is_one_line(monkeypatch, capsys, error, said):
    def failed(config, minutes):
        raise error

    monkeypatch.setattr(endurance, "soak", failed)
    assert soak.main([]) == 1
    assert capsys.readouterr() == ("", f"soak.py: {said}\n")


def remote(process, end, answers):
    counts = np.zeros((len(answers), 3), np.int64)
    counts[:, 1] = answers
    waits = SimpleNamespace(total=lambda: Waited(np.zeros(len(answers)), counts))
    groups = [slice(index, index + 1) for index in range(len(end))]
    return SimpleNamespace(process=process, groups=groups, segment=SimpleNamespace(end=np.array(end), waits=waits))


def test_groups_with_missing_answers_are_reported():
    watch = endurance.Watch(SimpleNamespace(), 1.0)
    watch._last = {7: np.array([5, 5, 5, 5])}
    run = SimpleNamespace(remotes=lambda: [remote(7, [9, 9, 5, 9], [9, 10, 6, 8]), remote(8, [3], [0])])
    assert watch._wrong(run) == {
        "process 7, group 2": "has been stuck for 20 s at step 5",
        "process 7, group 3": "has sent 10 requests and received 8 answers",
    }
