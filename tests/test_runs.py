"""`gunreal runs`, on runs that are described by their files alone."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time

import pytest
from trained import short_run

import gunreal
from gunreal import runs
from gunreal.__main__ import main
from gunreal.config import folders
from gunreal.config.files import save
from gunreal.config.schema import Config
from gunreal.records import metrics


@pytest.fixture
def make(tmp_path):
    """Makes the folder of a run, with lines of metrics as (step, seconds, score, stopped_by)."""

    def make(name, *lines, age=0.0, **fields):
        run_dir = tmp_path / name
        run_dir.mkdir(parents=True)
        save(Config(name=name, **fields), run_dir / folders.CONFIG)
        if lines:
            keys = ("step", "seconds", "score_mean", "stopped_by")
            text = "".join(json.dumps(dict(zip(keys, line, strict=False))) + "\n" for line in lines)
            (run_dir / metrics.FILE).write_text(text)
        for i, file in enumerate(sorted(run_dir.iterdir())):
            os.utime(file, (time.time() - age + i,) * 2)
        return tmp_path

    return make


@pytest.fixture
def hold():
    """Locks the folder of a run, as a process does that trains it."""
    with contextlib.ExitStack() as stack:
        yield lambda run_dir: stack.enter_context(folders.locked(run_dir))


def test_runs_are_listed_oldest_first_with_their_last_score(make, hold, capsys):
    hold(make("new", (10, 6.0, None), steps=1000, age=5) / "new")
    logdir = make("s/old", (50, 60.0, 1.25), (2000, 90.0, None, "steps"), steps=2000, tasks=("pc", "vr"), seed=3, age=9)
    (logdir / "notes").mkdir()  # not a run
    assert main(["gunreal", "runs", "--logdir", str(logdir)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "env", "tasks", "seed", "step", "steps", "minutes", "score", "state"]
    assert lines[0].split() == ["s/old", "ALE/Pong-v5", "pc,vr", "3", "2,000", "2,000", "1.5", "1.2", "finished"]
    assert lines[1].split() == ["new", "ALE/Pong-v5", "-", "1", "10", "1,000", "0.1", "-", "running"]
    assert head.index("state") == lines[0].index("finished") == lines[1].index("running")


@pytest.mark.parametrize(
    ("stopped_by", "state"),
    [
        ("steps", "finished"),
        ("SIGINT", "stopped"),
        ("error", "failed"),
        ("", "ended"),  # it was killed
    ],
)
def test_states(make, hold, stopped_by, state):
    line = (10, 6.0, 1.0, stopped_by) if stopped_by else (10, 6.0, 1.0)
    logdir = make("x", line, age=500)
    assert runs.table(str(logdir))[0]["state"] == state
    hold(logdir / "x")  # resumed, or the last evaluation is waited for
    assert runs.table(str(logdir))[0]["state"] == "running"


@pytest.mark.parametrize(("seconds", "age", "state"), [(5.0, 0, "running"), (60.0, 100, "running"), (5.0, 99, "ended")])
def test_states_on_a_file_system_without_locks(make, monkeypatch, seconds, age, state):
    """A run is silent between its lines."""

    def none(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(folders.fcntl, "flock", none)
    assert runs.table(str(make("x", (10, 6.0, 1.0), age=age, metrics_seconds=seconds)))[0]["state"] == state


def test_a_run_goes_on_from_the_moment_of_its_resume(tmp_path, monkeypatch):
    run = short_run(tmp_path, "x", steps=40, keep_checkpoints=1)
    seen = []

    def look(*_):
        seen.append(runs.table(str(tmp_path))[0]["state"])
        raise KeyboardInterrupt

    monkeypatch.setattr("gunreal.runtime.training.Training.run", look)
    with pytest.raises(KeyboardInterrupt):
        gunreal.resume(run, steps=80, show=False)
    monkeypatch.undo()
    gunreal.resume(run, steps=80, show=False, on_metrics=lambda _: True, metrics_seconds=0.01)
    seen.append(runs.table(str(tmp_path))[0]["state"])
    assert seen == ["running", "stopped"]


def test_a_run_that_has_just_begun_and_one_that_cannot_be_read(make, hold, capsys):
    logdir = make("begun")
    hold(logdir / "begun")
    (make("broken") / "broken" / folders.CONFIG).write_text("steps = [")
    (make("damaged", (10, 6.0, 1.0)) / "damaged" / metrics.FILE).write_text('{"step": 1\n{"step": 2}\n')
    assert runs.main(["gunreal runs", "--logdir", str(logdir), "--json"]) == 0
    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["begun"]["state"] == "running" and rows["begun"]["step"] == 0
    assert "broken" in rows["broken"]["state"] and "env" not in rows["broken"]
    assert "metrics.jsonl is damaged: line 1 is not" in rows["damaged"]["state"] and "env" not in rows["damaged"]
    assert runs.main(["gunreal runs", "--logdir", str(logdir)]) == 0


def test_a_line_without_its_time(make):
    logdir = make("interrupted", (10,))
    (row,) = runs.table(str(logdir))
    assert row["step"] == 10 and row["minutes"] == 0
