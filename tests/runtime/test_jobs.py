"""Training several runs, by processes that only look like it. tests/test_sweep.py has real ones, and evaluations."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from training import wait_until

from gunreal.config import folders
from gunreal.config.sweeps import Planned, Sweep
from gunreal.runtime import jobs

FAKE = """
import json, pathlib, signal, sys, time
what, path = sys.argv[1], pathlib.Path(sys.argv[2])
path.mkdir(exist_ok=True)
def leave(step, stopped_by):
    with open(path / "metrics.jsonl", "a") as file:
        line = {"step": step, "seconds": 2.0, "score_mean": 1.5, "episodes": 200, "stopped_by": stopped_by}
        print(json.dumps(line), file=file, flush=True)
def stop(number, _):
    leave(500, signal.Signals(number).name)
    sys.exit()
if what == "fails":
    sys.exit("gunreal: no such luck")
if what == "waits":
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    leave(100, None)
    time.sleep(60)
leave(1001, "error" if what == "loses" else "steps")
if what == "loses":
    sys.exit("gunreal: the disk is full")
(path / "checkpoints").mkdir()
(path / "checkpoints" / "step_000000001001.npz").touch()
"""


class Fake(jobs.Job):
    """A run of a process that does what it is told."""

    def __init__(self, path, what="works", **limits):
        super().__init__(Planned("base", {"name": path.name, "steps": 1000}), Sweep(path.parent, [], **limits))
        self.what = what

    def next(self):
        return None if self._trained() else jobs.Command([sys.executable, "-c", FAKE, self.what, str(self.path)])


def run(made, parallel=1, tick=lambda scheduler: None):
    said = []
    scheduler = jobs.Scheduler(made, parallel, said.append, lambda: tick(scheduler))
    scheduler.run()
    return scheduler, said


def last(job):
    return job.lines()[-1]["stopped_by"]


def test_it_goes_on_after_a_failure(tmp_path):
    scheduler, said = run([Fake(tmp_path / "a", "fails"), Fake(tmp_path / "b")])
    assert scheduler.states == {"a": "failed", "b": "finished"}
    assert "a: failed with exit code 1: gunreal: no such luck" in said
    again, _ = run([Fake(tmp_path / "a"), Fake(tmp_path / "b")])
    assert again.states == {"a": "finished", "b": "finished"}


def test_a_run_without_its_last_weights_has_failed(tmp_path):
    scheduler, said = run([job := Fake(tmp_path / "a", "loses")])
    assert scheduler.states == {"a": "failed"} and said[-1].endswith("exit code 1: gunreal: the disk is full")
    assert job.next()


def test_a_finished_run_stays_finished_without_its_checkpoints(tmp_path):
    run([job := Fake(tmp_path / "a")])
    shutil.rmtree(job.path / "checkpoints")
    assert not job.next()


def test_a_run_that_was_killed_beyond_its_limit_is_resumed_and_saved(tmp_path):
    job = Fake(tmp_path / "a", "waits", minutes=2 / 60)
    job.path.mkdir()
    (job.path / "metrics.jsonl").write_text('{"step": 100, "seconds": 2.0}\n')
    scheduler, _ = run([job])
    assert scheduler.states == {"a": "finished"} and last(job) == "SIGINT"


def test_a_process_that_cannot_be_started_is_a_failure(tmp_path):
    (tmp_path / "a.log").mkdir()
    scheduler, said = run([Fake(tmp_path / "a"), Fake(tmp_path / "b")])
    assert scheduler.states == {"a": "failed", "b": "finished"} and "Is a directory" in said[0]


@pytest.mark.parametrize("limits", [{"score": 1.5}, {"minutes": 2 / 60}])
def test_a_run_ends_at_its_score_or_its_time(tmp_path, limits):
    scheduler, _ = run([job := Fake(tmp_path / "a", "waits", **limits)])
    assert scheduler.states == {"a": "finished"} and last(job) == "SIGINT"
    beyond = Fake(tmp_path / "a", **{name: 2 * value for name, value in limits.items()})
    assert beyond.next()  # it goes on if the limit is raised


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_runs_in_order(tmp_path, number):
    made = [Fake(tmp_path / name, "waits") for name in "abc"]
    came = []

    def interrupt(_):
        if not came and all(job.lines() for job in made[:2]):
            came.append(number)
            os.kill(os.getpid(), number)

    def handler(*_):
        raise AssertionError("it was to be replaced")

    inherited = signal.signal(number, handler)  # under nohup, SIGHUP would be ignored
    try:
        scheduler, _ = run(made, parallel=2, tick=interrupt)
        assert signal.getsignal(number) == handler
    finally:
        signal.signal(number, inherited)
    assert scheduler.stopping and scheduler.states == {"a": "stopped", "b": "stopped", "c": "waiting"}
    assert [last(job) for job in made[:2]] == ["SIGINT", "SIGINT"]  # once; a second one would lose the checkpoint


def test_an_error_leaves_nothing_running(tmp_path):
    job = Fake(tmp_path / "a", "waits")

    def tick(_):
        if job.lines():
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        run([job], tick=tick)
    assert last(job) == "SIGINT"


def test_runs_save_themselves_when_the_scheduler_is_killed(tmp_path):
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path\nfrom test_jobs import Fake, run\n"
        "run([Fake(Path(sys.argv[3]) / 'a', 'waits')])"
    )
    paths = [os.path.dirname(__file__), *(path for path in sys.path if path.endswith("support"))]
    job = Fake(tmp_path / "a")
    process = subprocess.Popen([sys.executable, "-c", program, *paths[:2], str(tmp_path)])
    try:
        wait_until(lambda: job.lines())
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: last(job) == "SIGTERM")


def test_it_waits_for_a_run_that_another_process_trains(tmp_path):
    job = Fake(tmp_path / "a")
    job.path.mkdir()
    with contextlib.ExitStack() as lock:
        lock.enter_context(folders.locked(job.path))
        release = threading.Timer(1.0, lock.pop_all().close)
        release.start()
        scheduler, said = run([job])
        release.join()
    assert scheduler.states == {"a": "finished"}
    assert said == ["a: waiting for another process, which trains it", "a: running", "a: finished"]
