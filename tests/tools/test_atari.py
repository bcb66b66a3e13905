"""Planning, resuming and drawing the comparison on Atari games, by systems that only look like training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import atari
import compare_peers
import pytest
import reproduce
import steps_to_score
from peer_standins import TOOLS, learner, leave, lines
from peers import contestants
from peers.table import LEARNING
from scores import plan
from training import wait_until

from gunreal.config.files import save
from gunreal.config.schema import Config, ConfigError

LEARNS = """
curve.start()
for step in range(0, curve.steps + 100, 100):
    time.sleep(0.01)
    curve.episode(seed + step / 100)
    if not curve.report(step):
        break
"""


def systems(labels, *pythons, rest=()):
    return contestants.parse(labels, pythons, rest, LEARNING, "learn")


def planned(tmp_path, labels="gunreal-tasks,sb3-ppo:envs=4", rest=(), **options):
    chosen = systems(labels, rest=rest)
    known = {system.label: {"settings": system.settings, "versions": {}} for system in chosen}
    given = {"steps": 1000, "seeds": 2, "logdir": tmp_path, "known": known} | options
    return plan.plan(chosen, ["Pong", "Qbert"], **given)


def test_the_home_folder_of_a_logdir(monkeypatch):
    """Which a shell leaves as it is in `--logdir=~/runs`. The trainings would find it, but not their results."""
    monkeypatch.setenv("HOME", "/home/me")
    path = Path("/home/me/runs")
    assert atari.parse(["--logdir=~/runs"])[0].logdir == path
    assert compare_peers.parse(["--learn", "--logdir=~/runs"])[0].logdir == path
    assert reproduce.parse(["fig10", "--logdir=~/runs"])[0].logdir == str(path)
    assert steps_to_score.parse(["--score", "1", "--env", "gunreal/Catch-v0", "--logdir=~/runs"])[0].logdir == path


def test_plan(tmp_path):
    jobs = planned(tmp_path, rest=["--entropy", "0.03"], our_steps=500)
    assert [job.name for job in jobs[:4]] == [
        "Pong-gunreal-tasks-s1",
        "Pong-sb3-ppo_envs_4-s1",
        "Qbert-gunreal-tasks-s1",
        "Qbert-sb3-ppo_envs_4-s1",
    ]
    assert len(jobs) == 8 and jobs[4].name == "Pong-gunreal-tasks-s2" and [job.steps for job in jobs[:2]] == [500, 1000]
    config = jobs[6].config
    assert (config.env, config.seed, config.tasks, config.entropy) == ("ALE/Qbert-v5", 2, ("pc", "vr", "rp"), 0.03)
    words = jobs[7].command()
    assert words[1:3] == [str(TOOLS / "train_peer.py"), "sb3-ppo"] and json.loads(words[4]) == {"envs": 4}
    assert words[5:] == ["--game", "Qbert", "--steps", "1000", "--seed", "2", "--out", str(tmp_path / jobs[7].name)]
    with pytest.raises(ConfigError, match="--seed is set by this command"):
        planned(tmp_path, rest=["--seed", "5"])


def test_flags_of_gunreal(tmp_path):
    pytest.importorskip("jax")
    default = planned(tmp_path)[0].config
    given = planned(tmp_path, rest=["--runner", "device", "--metrics_seconds", "1"])[0].config
    assert (default.backend, default.metrics_seconds) == ("tensorflow", 5.0)
    assert (given.backend, given.metrics_seconds) == ("jax", 1.0)


@pytest.mark.parametrize("name", ["gunreal", "gunreal-tasks"])
def test_settings_of_an_existing_run_are_not_taken_over(tmp_path, name):
    run = tmp_path / "run"
    run.mkdir()
    save(Config(env="ALE/Pong-v5", tasks=("pc", "vr", "rp") if name == "gunreal-tasks" else ()), run / "config.toml")
    with pytest.raises(ConfigError, match="--resume can't be used here; leave it out"):
        planned(tmp_path, name, rest=["--resume", str(run)])


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_of_another_configuration_is_rejected(tmp_path, ended):
    """Also an unfinished one, which would be removed and start again."""
    job = planned(tmp_path)[1]
    job.prepare()
    leave(job.path, lines(1, 2, ended=ended))
    job.check()
    with pytest.raises(ConfigError, match="has steps 1000, not 2000; choose another --logdir"):
        planned(tmp_path, steps=2000)[1].check()
    (job.path / "job.json").write_text('{"game"')
    with pytest.raises(ConfigError, match="Pong-sb3-ppo_envs_4-s1 is not a run of another system"):
        job.check()


def test_a_run_that_ended_at_lower_limits_is_kept(tmp_path):
    limits = {"score": 18.0, "minutes": 3.0}
    job = planned(tmp_path, **limits)[1]
    job.prepare()
    leave(job.path, lines(1, 2, ended=False))
    planned(tmp_path, minutes=5.0)[1].check()  # cut off: it starts again
    leave(job.path, [*lines(1, 2, 3, ended=False), lines(1, 2, 3)[-1] | {"stopped_by": "SIGINT"}])
    for same in (limits, {"score": 2.0}):
        planned(tmp_path, **same)[1].check()
    for raised in ({"score": 18.0, "minutes": 5.0}, {"score": 18.0}, {}):
        with pytest.raises(ConfigError, match="s1 has ended at --score 18 --minutes 3; use these limits"):
            planned(tmp_path, **raised)[1].check()


def test_it_trains_what_is_missing_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    python = learner(tmp_path / "python", LEARNS)
    logdir = tmp_path / "runs"
    words = ["--systems", "sb3-ppo,sb3-ppo:envs=4", "--python", f"sb3={python}", "--games", "Pong,Breakout"]
    words += ["--steps", "1k", "--seeds", "1", "--parallel", "2", "--logdir", str(logdir)]
    done = logdir / "Pong-sb3-ppo-s1"
    assert atari.main(words) == 0
    leave(logdir / "Breakout-sb3-ppo-s1", lines(1, ended=False))  # stopped: it starts again
    stamp = done.joinpath("metrics.jsonl").stat().st_mtime_ns
    assert atari.main(words) == 0 and done.joinpath("metrics.jsonl").stat().st_mtime_ns == stamp
    assert "4 runs of 1,000 agent steps, of which 3 have finished" in capsys.readouterr().out
    found = json.loads((logdir / "atari.json").read_text())
    assert found["steps"]["games"] == ["Pong", "Breakout"] and found["minutes"]["at"] > 0
    scores = found["steps"]["systems"]["sb3-ppo"]["scores"]
    assert scores["Pong"] == scores["Breakout"] == [6.0]  # the mean of 1 to 11
    text = (logdir / "atari.md").read_text()
    (iqm,) = found["steps"]["systems"]["sb3-ppo"]["iqm"]  # of one seed, without an interval
    assert (
        f"| Stable-Baselines3 PPO envs=4 | 6.0 (1) | 6.0 (1) | {iqm:.1%} | - |" in text
        and "![Pong](atari-Pong.png)" in text
    )
    for name in ("atari.png", "atari-Pong.png", "atari-Breakout.png"):
        assert (logdir / name).stat().st_size > 5_000
    about = json.loads((done / "job.json").read_text())
    assert (about["game"], about["steps"], about["settings"]) == ("Pong", 1000, {"envs": 8, "processes": True})


def test_unfinished_runs_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    leave(tmp_path / "Pong-gunreal-s1", lines(-20, -19, ended=False))
    leave(tmp_path / "Pong-sf-s1", lines(-20, -18))
    words = ["--draw", "--games", "Pong,Qbert", "--systems", "gunreal,sf", "--logdir", str(tmp_path), "--steps", "200"]
    assert atari.main(words) == 0
    text = (tmp_path / "atari.md").read_text()
    assert "gunreal, no task beats Sample Factory APPO with probability 0.00." in text


def test_runs_are_drawn_with_their_own_steps_only(tmp_path, capsys):
    """And without the interpreters of the other systems."""
    pytest.importorskip("matplotlib")
    for job in planned(tmp_path, seeds=1):
        job.prepare()
        leave(job.path, lines(1, 2, every=500))
    ours = planned(tmp_path, seeds=1)[0]
    save(ours.config, ours.path / "config.toml")
    words = ["--draw", "--games", "Pong,Qbert", "--systems", "gunreal-tasks,sb3-ppo:envs=4", "--logdir", str(tmp_path)]
    assert atari.main([*words, "--steps", "1k"]) == 0
    for systems, run in (("gunreal-tasks", "Pong-gunreal-tasks-s1"), ("sb3-ppo:envs=4", "Pong-sb3-ppo_envs_4-s1")):
        capsys.readouterr()
        assert atari.main([*words, "--steps", "2k", "--systems", systems]) == 2
        error = capsys.readouterr().err
        message = f"{tmp_path / run} has steps 1000, not 2000; choose another --steps or --logdir"
        assert error == f"atari.py: {message}\n"


def test_systems_train_without_a_gpu(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    python = learner(tmp_path / "python", "print('GPUs', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n" + LEARNS)
    words = ["--systems", "sb3-ppo", "--python", f"sb3={python}", "--games", "Pong", "--steps", "100", "--seeds", "1"]
    assert atari.main([*words, "--logdir", str(tmp_path / "runs")]) == 0
    assert "GPUs ''" in (tmp_path / "runs" / "Pong-sb3-ppo-s1.log").read_text()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_training(tmp_path, number):
    begun = tmp_path / "begun"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    python.chmod(0o755)
    words = [sys.executable, TOOLS / "atari.py", "--systems", "sb3-ppo", "--python", f"sb3={python}"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: begun.exists() or process.poll() is not None)
        process.send_signal(number)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 130 and "stopped; to continue, run: python" in out and error == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--systems sb3-ppo --python sb3=/bin/true", "true does not answer like a Python interpreter; check --python"),
        ("--games Pung", "unknown game 'Pung'; did you mean Pong?"),
        ("--systems sb3-pp", "did you mean sb3-ppo?"),
        ("--systems sb3-ppo:envs=x", "its settings are whole numbers: envs=8, processes=1"),
        ("--systems gunreal --steps many", "--steps: 'many' is not a whole number"),
        ("--seeds 0", "--seeds is 0"),
        ("--minutes 0", "--minutes is 0"),
        ("--systems gunreal --draw --logdir nowhere", "no run in nowhere has a score yet"),
        ("--systems sf --python sf=/bin/false", "sf can't be trained: exit code 1; pip install torch sample-factory"),
        ("--systems gunreal -- --agnets 3", "did you mean --agents?"),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert atari.main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not list(tmp_path.iterdir())
