"""Evaluation during training: when it is due, and that it leaves the run as it is without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import pytest
from trained import short_run
from training import is_gone, use_dead_python, wait_until

from gunreal.acting.episodes import play
from gunreal.config.process import python, told
from gunreal.config.schema import Config
from gunreal.records.tensorboard import tag
from gunreal.runtime import evaluation
from gunreal.runtime.base import Status
from gunreal.runtime.evaluation import KEYS, Evaluation

PLAYS = "print('noise'); os.write(scores, b'[1.5, 0.5, 9.0]'); print('bye')"


def boot(text):
    return f"import os; run_dir, path, alive, scores = pickle.load(sys.stdin.buffer); {text}"


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes an evaluation whose process runs `program` instead."""
    made = []

    def make(program=PLAYS, step=0, evaluated=0, **options):
        if evaluated:
            (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": step, "eval_step": evaluated}) + "\n")
        monkeypatch.setattr(evaluation, "_BOOT", boot(program))
        status = Status(Config(**options), SimpleNamespace(step=step), None)
        runner = SimpleNamespace(status=status, state=dict, drain_episodes=lambda: None)
        made.append(Evaluation(runner, tmp_path))
        return made[-1], runner

    yield make
    for one in made:
        one.close()


@pytest.fixture
def clock(monkeypatch):
    """The time that passes for an evaluation."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=time.sleep)
    monkeypatch.setattr(evaluation, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("evaluated", "steps", "expected"),
    [
        (200, (250, 299, 300, 399, 730, 790, 800), [300, 730, 800]),
        (100, (250, 251), [250]),  # the one at 200 ended with the run that was resumed at 250, and is made up for
    ],
)
def test_it_is_due_at_multiples_of_its_steps(make, evaluated, steps, expected):
    one, runner = make(step=250, eval_steps=100, evaluated=evaluated)
    for step in steps:
        runner.status.metrics.step = step
        one.finish()
    assert [one.take()["eval_step"] for _ in range(one.left())] == expected


def test_its_step_counts_what_a_device_run_has_not_read_yet(make):
    one, runner = make(step=20, eval_steps=10)
    runner.status.metrics.step = 30
    runner.drain_episodes = lambda: setattr(runner.status.metrics, "step", 38)
    one.finish()
    assert one.take()["eval_step"] == 38


def test_it_is_due_by_time_once_there_are_steps(make, clock):
    one, runner = make(step=250, eval_minutes=2.0, evaluated=250)  # resumed at 250
    found = []
    for clock.now, runner.status.metrics.step in ((130.0, 250), (100.0, 251), (130.0, 251)):
        one.finish()
        found.append(one.left())
    assert found == [0, 0, 1]


def test_the_wait_ends_after_evaluations_that_take_longer_than_their_interval(make):
    """The next one is due by then, but there are no new weights."""
    one, runner = make(eval_minutes=1e-12)
    for runner.status.metrics.step in (10, 11):
        one.finish()
    assert [one.take()["eval_step"] for _ in range(one.left())] == [10, 11]


def test_each_result_is_in_one_line(make):
    """Also that of an evaluation that is still running at the end of a run, after which another one is due."""
    one, runner = make(eval_steps=10)
    assert one.take() == dict.fromkeys(KEYS)
    runner.status.metrics.step = 10
    one.tick()
    one._popen.wait()
    runner.status.metrics.step = 20
    one.finish()
    assert one.left() == 2
    for step in (10, 20):
        assert one.take() == dict(zip(KEYS, (step, 1.5, 0.5, 9.0), strict=True))
    assert one.left() == 0 and one.take() == dict.fromkeys(KEYS)
    assert tag("eval_score_mean") == "eval/score_mean"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('bye')", "exit code 0"),
        ("print('a game', file=sys.stderr); sys.exit('no display')", "no display"),
    ],
)
def test_a_failure_is_one_line_and_the_run_goes_on(make, capfd, program, reason):
    one, runner = make(program, eval_steps=10)
    runner.status.metrics.step = 10
    one.finish()
    assert capfd.readouterr().err.endswith(f"gunreal: the evaluation at step 10 failed: {reason}\n")
    assert one.take() == dict.fromkeys(KEYS)


@pytest.mark.parametrize("collected", [True, False])
def test_a_process_that_dies_before_it_has_read_anything(make, monkeypatch, tmp_path, capfd, collected):
    one, runner = make(eval_steps=10)
    use_dead_python(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "path", sys.path[:1])  # so little that closing its input tries again to write it
    start = one._process

    def dead():
        process = start()
        process.wait()
        return process

    monkeypatch.setattr(one, "_process", dead)
    runner.status.metrics.step = 10
    one.tick()
    if collected:
        one.finish()
        assert capfd.readouterr().err.endswith("gunreal: the evaluation at step 10 failed: no such luck\n")
    one.close()


def test_a_process_that_cannot_be_started_does_not_end_the_run(make, monkeypatch, capfd):
    def full(*_, **__):
        raise OSError(12, os.strerror(12))

    one, runner = make(eval_steps=10)
    runner.status.metrics.step = 10
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", full)
        one.tick()
    err = capfd.readouterr().err
    assert err.startswith("gunreal: no evaluation at step 10: ") and "Cannot allocate" in err and err.count("\n") == 1
    runner.status.metrics.step = 20
    one.finish()
    assert one.take()["eval_score_mean"] == 1.5


LEAVES_A_PROCESS = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, file=sys.stderr, flush=True)"


@pytest.mark.parametrize("ends", [PLAYS, "sys.exit(3)", "time.sleep(600)"])
def test_nothing_is_left(make, tmp_path, ends):
    """Neither the process, which a signal keeps the run from waiting for, nor what its environments have started."""
    one, runner = make(f"{LEAVES_A_PROCESS}; {ends}", eval_steps=10)
    runner.status.metrics.step, runner.status.in_haste = 10, "sleep" in ends
    one.tick()
    wait_until(lambda: evaluation._end(one._errors).endswith("\n"))
    started, pid = int(evaluation._end(one._errors)), one._popen.pid
    one.finish()
    one.close()
    wait_until(lambda: is_gone(started))
    assert is_gone(pid) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("steps", [0, 2])
def test_a_process_that_takes_no_step_for_long_is_killed(make, clock, capfd, steps):
    """Each step gives it new time, and the next evaluation is as any other."""
    waits = "[(sys.stdin.buffer.read(1), os.utime(alive, (step, step))) for step in (1, 2, 3)]"
    one, runner = make(waits, eval_steps=10, env_timeout=30.0, runner="parallel" if steps else "device")
    runner.status.metrics.step = 10
    one.tick()
    for seconds in (evaluation._STARTING, 30 + evaluation._STARVED)[:steps]:
        clock.now += seconds
        before = one._sign()
        one._popen.stdin.write(b"x")
        one._popen.stdin.flush()
        wait_until(lambda before=before: one._sign() != before)
        one.tick()
        assert one._popen
    seconds, fix = 30 + evaluation._STARVED, "raise --env_timeout if its environment is that slow"
    if not steps:
        seconds, fix = 30 + evaluation._STARTING, f"to see where it hangs, run gunreal evaluate {one._run_dir}"
    pid = one._popen.pid
    clock.now += seconds
    one.tick()
    assert one._popen.pid == pid and not is_gone(pid)
    clock.now += 0.1
    one.tick()
    assert one._popen is None and is_gone(pid)
    error = f"gunreal: the evaluation at step 10 failed: no step within {seconds:g} s; {fix}\n"
    assert capfd.readouterr().err == error and one.left() == 0
    evaluation._BOOT = boot(PLAYS)
    runner.status.metrics.step = 20
    one.finish()
    assert one.take()["eval_score_mean"] == 1.5


def test_a_serial_run_is_the_same_with_and_without(tmp_path):
    """Bit by bit, and its scores are those that `evaluate` finds for these weights."""
    plain = short_run(tmp_path, "plain", steps=200)
    run = short_run(tmp_path, "evaluated", steps=200, eval_steps=200, eval_episodes=3)
    assert run.metrics[-1]["weights_sha256"] == plain.metrics[-1]["weights_sha256"]
    last = run.metrics[-1]
    assert last["stopped_by"] == "steps" and last["eval_step"] == run.step
    scores = [episode.score for episode in play(run.learner, run.config, run.spec, 3)]
    assert last["eval_score_mean"] == pytest.approx(sum(scores) / 3) and last["eval_length_mean"] > 0
    assert not (run.path / "evaluation").exists() and "eval_step" not in plain.metrics[-1]


def test_the_process_shows_each_step_and_ends_with_the_server(tmp_path):
    """It would be killed for taking no step."""
    run = short_run(tmp_path, "plain", steps=100, eval_steps=10**9, eval_episodes=10**6)
    with tempfile.TemporaryFile() as alive, tempfile.TemporaryFile() as scores:
        os.utime(alive.fileno(), (1, 1))
        files = alive.fileno(), scores.fileno()
        command = python(f"import os; os.nice = int; {evaluation._BOOT}")  # or it waits for all that is busy
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=files, process_group=0)  # which it ends
        try:
            process.stdin.write(told((run.path, run.checkpoint, *files)))
            process.stdin.flush()
            wait_until(lambda: os.fstat(alive.fileno()).st_mtime > 1 or process.poll() is not None)
            process.stdin.close()
            assert process.wait() == -signal.SIGKILL
        finally:
            process.kill()
