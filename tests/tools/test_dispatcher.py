"""Training several runs, by processes that only look like it."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from experiments import dispatcher, jobs
from planned import CATCH, FINISHED, make_run, plan, small, trainings
from training import wait_until

from gunreal.config.files import load, save
from gunreal.config.schema import Config, ConfigError

FAKE = """
import json, pathlib, signal, sys, time
what, path = sys.argv[1], pathlib.Path(sys.argv[2])
def leave(step, stopped_by):
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    (path / "checkpoints" / f"step_{step:012d}.npz").touch()
    with open(path / "metrics.jsonl", "a") as file:
        line = {"step": step, "seconds": 2.0, "score_mean": 1.5, "episodes": 200, "stopped_by": stopped_by}
        print(json.dumps(line), file=file, flush=True)
def stop(*_):
    leave(500, "SIGINT")
    sys.exit()
if what == "fails":
    sys.exit("gunreal: no such luck")
if what == "waits":
    signal.signal(signal.SIGINT, stop)
    leave(100, None)
    time.sleep(60)
leave(1001, "steps")
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a dispatcher whose trainings do, by setting, what they are told."""

    def dispatcher_of(wanted, parallel=1, **what):
        said = []

        def command(training):
            save(training.config, make_folder(training.path) / "config.toml")
            return [sys.executable, "-c", FAKE, what.get(training.setting, "works"), str(training.path)]

        monkeypatch.setattr(trainings.Training, "command", command)
        lock = open(os.devnull)  # noqa: SIM115
        return dispatcher.Dispatcher(wanted, parallel, lock, said.append, every=0.1), said

    return dispatcher_of


def make_folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def test_it_trains_what_is_missing(tmp_path, make):
    wanted = plan(tmp_path, small("base", "pc", "vr"))
    make_run(wanted[0], FINISHED)
    make_run(wanted[1], {"step": 3}, checkpoint=False)  # stopped before its first checkpoint: it starts again
    working, said = make(wanted)
    ended = []
    working.train(lambda: ended.append([training.finished() for training in wanted]))
    assert ended == [[True, True, False], [True, True, True]]
    assert wanted[1].lines()[0]["step"] == 1001 and not working.failed and not working.stopping
    started = [line for line in said if "-c" in line]
    assert len(started) == 2 and all(str(tmp_path) in line for line in started)
    kept = Config(**load(tmp_path / "ablation-pc.toml"))
    assert (kept.tasks, kept.env, kept.steps, kept.name) == (("pc",), CATCH, 1000, "")


def test_it_goes_on_after_a_failure(tmp_path, make):
    wanted = plan(tmp_path, small("base", "pc"))
    working, said = make(wanted, base="fails")
    working.train(lambda: None)
    assert working.failed == wanted[:1] and wanted[1].finished()
    assert any("ablation-base-s1 failed with exit code 1: gunreal: no such luck" in line for line in said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_stops_in_order(tmp_path, make, number):
    """A signal reaches all that are being trained, once; nothing new is started."""
    wanted = plan(tmp_path, small("base", "pc", "vr"))
    working, said = make(wanted, parallel=2, base="waits", pc="waits")

    progress = "100 of 1,000 agent steps, score 1.50, 50 agent steps/s; about 0.0 h left for all runs"

    def interrupt():
        try:
            wait_until(lambda: all(training.step() for training in wanted[:2]))
            wait_until(lambda: any(progress in line for line in said))
        finally:
            os.kill(os.getpid(), number)

    def handler(*_):
        raise AssertionError("it was to be replaced")

    thread = threading.Thread(target=interrupt)
    inherited = signal.signal(number, handler)  # under nohup, SIGHUP would be ignored
    try:
        thread.start()
        working.train(lambda: None)
        assert signal.getsignal(number) == handler
    finally:
        thread.join()
        signal.signal(number, inherited)
    assert working.stopping and not working.failed
    assert [jobs.stopped_by(training.lines()) for training in wanted] == ["SIGINT", "SIGINT", None]
    assert any(progress in line for line in said)


def test_the_remaining_time_is_of_runs_that_have_not_ended(tmp_path, make):
    """A run may end long before its budget, at its score or by a failure."""
    base, pc, vr = plan(tmp_path, small("base", "pc", "vr"), steps=360_100)
    base = dataclasses.replace(base, score=1.0)
    make_run(base, {"step": 100, "seconds": 2.0, "score_mean": 1.5, "episodes": 200, "stopped_by": "SIGINT"})
    working, said = make([base, pc, vr], pc="fails", vr="waits")

    def interrupt():
        try:
            wait_until(lambda: any("h left for all runs" in line for line in said))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    working.train(lambda: None)
    thread.join()
    assert working.failed == [pc]
    assert any("about 2.0 h left" in line for line in said), said  # 360,000 steps at 50 per second


def test_it_leaves_nothing_running(tmp_path, make):
    wanted = plan(tmp_path, small("base", "pc"))
    working, _ = make(wanted, parallel=2, base="waits")

    def ended():
        wait_until(lambda: wanted[0].step())
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        working.train(ended)
    assert jobs.stopped_by(wanted[0].lines()) == "SIGINT"


def test_one_at_a_time_in_a_folder(tmp_path):
    with dispatcher.locked(tmp_path / "new"):  # noqa: SIM117
        with pytest.raises(ConfigError, match="is in use by other trainings"), dispatcher.locked(tmp_path / "new"):
            pass
    with dispatcher.locked(tmp_path / "new"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't write to"), dispatcher.locked(tmp_path / "file"):
        pass
