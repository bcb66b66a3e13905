from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile

import pytest
from trained import short_run

import gunreal
from gunreal.acting.episodes import play
from gunreal.config.process import python
from gunreal.runtime import evaluation


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


def test_a_parallel_run_evaluates(tmp_path):
    """On the network of a backend that plays in another process, with its own environment."""
    options = {"env": "gunreal/Catch-v0", "agents": 4, "hidden": 8, "eval_steps": 300, "eval_episodes": 2}
    run = gunreal.train(gunreal.Config(**options, steps=300, logdir=str(tmp_path), name="parallel"), show=False)
    (line,) = (line for line in run.metrics if line["eval_step"])
    assert line["eval_step"] >= 300 and -1 <= line["eval_score_mean"] <= 1 and line["eval_length_mean"] == 9


def test_the_process_shows_each_step(tmp_path):
    """Or it would be killed for taking none."""
    run = short_run(tmp_path, "plain", steps=100)
    with tempfile.TemporaryFile() as alive, tempfile.TemporaryFile() as scores:
        os.utime(alive.fileno(), (1, 1))
        files = alive.fileno(), scores.fileno()
        process = subprocess.Popen(python(evaluation._BOOT), stdin=subprocess.PIPE, pass_fds=files)
        process.stdin.write(pickle.dumps(sys.path) + pickle.dumps((run.path, run.checkpoint, *files)))
        process.stdin.flush()
        assert process.wait() == 0 and os.fstat(alive.fileno()).st_mtime > 1
        process.stdin.close()
