"""Counting the steps to a score, mostly by trainings that only look like it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import steps_to_score
from training import Training, is_gone, wait_until

from gunreal.config import folders

TOOLS = Path(__file__).parents[2] / "tools"


def test_steps_wait_for_a_hundred_episodes():
    steps_to = steps_to_score.steps_to
    lines = [
        {"step": 10, "episodes": 2, "score_mean": 1.0},
        {"step": 20, "episodes": 100, "score_mean": 0.7},
        {"step": 30, "episodes": 150, "score_mean": 0.8},
    ]
    assert steps_to(lines, 0.8) == 30
    assert steps_to(lines, 0.9) is None
    assert steps_to([{"step": 5, "episodes": 0, "score_mean": None}], 0.0) is None


def score(logdir, *words):
    common = ["--env", "gunreal/Catch-v0", "--settings", "", "--steps", "900", "--logdir", str(logdir)]
    return steps_to_score.main([*common, *words])


class Trained:
    """A training that has reached a score of 0.9 after as many steps as its seed."""

    returncode = 0

    def __init__(self, command, **_):
        options = dict(zip(command[3::2], command[4::2], strict=True))
        folder = Path(options["--logdir"], options["--name"])
        folder.mkdir(parents=True)
        line = {"step": int(options["--seed"]), "episodes": 100, "score_mean": 0.9}
        (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")

    def poll(self):
        return 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "trained with other flags"),
        (["--json", "/nowhere/x.json"], "can't write /nowhere/x.json"),
        (["--seeds", "0"], "--seeds is 0, but must be positive"),
        (["--steps", "many"], "--steps: 'many' is not a whole number"),
        (["--settings", "pc,xx"], "unknown task 'xx'"),
        (["--nosuch", "3"], "unknown flag --nosuch"),
        (["--seed", "3"], "--seed is set by this command; leave it out"),
        (["--env", "None-v0"], "unknown environment 'None-v0'"),
        (["--task_share", "0.5"], "task_share has no effect without tasks"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, words, message):
    """Also a run with other flags, which is not taken for its own. Nothing starts, and nothing is left."""
    monkeypatch.setattr(steps_to_score.subprocess, "Popen", None)
    (tmp_path / "Catch-v0-base-s1.flags").write_text("--agents 2")
    assert score(tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_training_that_fails_at_once_leaves_nothing(tmp_path, monkeypatch, capsys):
    class Failing:
        returncode = 1

        def __init__(self, *_, **__):
            pass

        def poll(self):
            return 1

    monkeypatch.setattr(steps_to_score.subprocess, "Popen", Failing)
    assert score(tmp_path, "--seeds", "1") == 1
    assert capsys.readouterr().err.endswith("ended with code 1\n") and not list(tmp_path.iterdir())


def test_unfinished_runs_start_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(steps_to_score.subprocess, "Popen", Trained)
    assert score(tmp_path, "--seeds", "1", "--steps", "0.9k") == 0
    unfinished = tmp_path / "Catch-v0-base-s2"
    unfinished.mkdir()
    (unfinished / "config.toml").touch()
    assert score(tmp_path, "--seeds", "2") == 2
    assert "Catch-v0-base-s2 is not a run of this command" in capsys.readouterr().err
    (tmp_path / "Catch-v0-base-s2.begun").touch()
    with folders.locked(unfinished):
        assert score(tmp_path, "--seeds", "2") == 2
    assert "is being trained by another process" in capsys.readouterr().err
    stamp = (tmp_path / "Catch-v0-base-s1" / "metrics.jsonl").stat().st_mtime_ns
    assert score(tmp_path, "--seeds", "2") == 0
    assert (
        "median 2, not reached by 0 of 2 runs" in capsys.readouterr().out and not (unfinished / "config.toml").exists()
    )
    assert (tmp_path / "Catch-v0-base-s1" / "metrics.jsonl").stat().st_mtime_ns == stamp


def test_a_share_of_updates_is_for_settings_with_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(steps_to_score.subprocess, "Popen", Trained)
    assert score(tmp_path, "--seeds", "1", "--settings", ";pc", "--task_share", "0.5") == 0
    base, pc = ((tmp_path / f"Catch-v0-{name}-s1.flags").read_text() for name in ("base", "pc"))
    assert "--task_share 0.5 --task_share 1.0 --score" in base and "--task_share 0.5 --score" in pc


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_once(tmp_path, monkeypatch, capsys, number):
    """Even if it has just been ended at its score, because a second signal would abort its checkpoint."""
    sent = []

    class Running(Trained):
        def poll(self):
            if not sent:
                signal.raise_signal(number)
            return 0 if len(sent) else None

        def send_signal(self, number):
            sent.append(number)

    monkeypatch.setattr(steps_to_score.subprocess, "Popen", Running)
    assert score(tmp_path) == 130
    assert sent == [signal.SIGINT] and "to continue, run: python" in capsys.readouterr().out
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".begun"]


def test_no_training_stays_after_sigterm(tmp_path):
    """The real thing."""
    flags = "--env gunreal/Catch-v0 --settings pc --agents 4 --agents_per_process 4 --min_batch 40 --hidden 32"
    words = [*flags.split(), "--logdir", "runs", "--steps", "100M", "--score", "2"]
    with Training(tmp_path, *words, name="Catch-v0-pc-s1", program=(str(TOOLS / "steps_to_score.py"),)) as process:
        wait_until(lambda: process.lines() or process.popen.poll() is not None)
        children = process.agents()
        assert process.signal(signal.SIGTERM, 60) == 130, process.stderr
    assert len(children) >= 2 and all(map(is_gone, children))
    assert process.lines()[-1]["stopped_by"] == "SIGINT" and process.checkpoints()


def test_the_median_is_a_bound_if_half_of_the_runs_miss_the_score(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(steps_to_score.subprocess, "Popen", Trained)
    monkeypatch.setattr(
        steps_to_score, "steps_to", lambda lines, score: lines[0]["step"] if lines[0]["step"] < 3 else None
    )
    for seeds, line in ((3, "median 2,"), (4, "median >= 451,")):
        assert score(tmp_path, "--seeds", str(seeds)) == 0
        assert line in capsys.readouterr().out
