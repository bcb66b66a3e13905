"""Time to a score: systems that only look like training, until they have it."""

from __future__ import annotations

import json

import compare_peers
import pytest
from peer_standins import learner, leave, lines
from peers import contestants, learning
from peers.table import LEARNING
from scores import plan

LEARNS = """
curve.start()
step = 0
while curve.report(step):
    step += 10
    curve.episode(step / 100)
    time.sleep(0.002)
"""


def test_numbers_and_table(tmp_path):
    chosen = contestants.parse("gunreal,sf", [], [], LEARNING, "learn")
    known = {"sf": {"settings": {}, "versions": {}}}
    jobs = plan.plan(chosen, ["Pong"], steps=900, seeds=3, logdir=tmp_path, known=known, score=18.0)
    for job, scores in zip(jobs[::2], ((0, 18, 19), (0, 0, 20), (0, 0, 0, 19)), strict=True):
        leave(job.path, lines(*scores))
    leave(jobs[1].path, lines(0, 17, ended=False))
    by_system = {"gunreal": jobs[::2], "sf": jobs[1::2]}
    text = learning.write(by_system, {"gunreal": "ours", "sf": "theirs"}, "Pong", 18.0, tmp_path)
    rows = json.loads((tmp_path / "learn.json").read_text())["systems"]
    assert rows["gunreal"]["steps"] == [200, 300, 400] and rows["gunreal"]["median"] == {"steps": 300, "seconds": 180}
    assert rows["sf"]["steps"] == [None] and rows["sf"]["finished"] == [False] and rows["sf"]["trained"] == [200]
    assert "| ours | 3 | 3 | 300 | 3.0 | 19.0, 20.0, 19.0 |" in text
    assert "| theirs | 1 | 0 | - | - | 17.0 |" in text
    assert (tmp_path / "learn.png").stat().st_size > 5_000


def test_a_run_ends_at_its_time_limit(tmp_path):
    chosen = contestants.parse("gunreal,sf", [], [], LEARNING, "learn")
    known = {"sf": {"settings": {}, "versions": {}}}
    limits = {"steps": 900, "seeds": 1, "logdir": tmp_path, "known": known, "score": 18.0}
    for job in plan.plan(chosen, ["Pong"], **limits, minutes=3.0):  # lines are a minute apart
        leave(job.path, lines(0, 1, 2, ended=False))
        assert job.over()
    for job in plan.plan(chosen, ["Pong"], **limits, minutes=4.0):
        assert not job.over()


def test_a_run_ends_when_it_has_the_score(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    python = learner(tmp_path / "python", "curve._every = 0.05\n" + LEARNS)
    words = ["--learn", "--peers", "sb3-ppo", "--python", f"sb3={python}", "--cores", "1", "--score", "3"]
    words += ["--steps", "1M", "--logdir", str(tmp_path / "runs")]
    assert compare_peers.main(words) == 0
    found = json.loads((tmp_path / "runs" / "learn.json").read_text())["systems"]["sb3-ppo"]
    assert found["finished"] == [True] and found["steps"][0] < found["trained"][0] < 1e6 and found["final"][0] >= 3
    before = (tmp_path / "runs" / "Pong-sb3-ppo-s1" / "metrics.jsonl").read_text()
    assert json.loads(before.splitlines()[-1])["stopped_by"] == "SIGINT"
    assert compare_peers.main(words) == 0
    assert (tmp_path / "runs" / "Pong-sb3-ppo-s1" / "metrics.jsonl").read_text() == before
    assert "Stable-Baselines3 PPO" in capsys.readouterr().out


def test_a_damaged_file_is_one_line(tmp_path, capsys):
    python = learner(tmp_path / "python", LEARNS)
    run = tmp_path / "runs" / "Pong-sb3-ppo-s1"
    leave(run, lines(1, ended=False))
    (run / "metrics.jsonl").write_text("no metrics\n")
    (run / "job.json").write_text(
        '{"game": "Pong", "steps": 10000000, "seed": 1, "settings": {"envs": 8, "processes": true}}'
    )
    words = ["--learn", "--peers", "sb3-ppo", "--python", f"sb3={python}", "--cores", "1"]
    assert compare_peers.main([*words, "--logdir", str(run.parent)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("compare_peers.py: ") and error.count("\n") == 1 and "metrics.jsonl" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--score 3", "--score needs --learn"),
        ("--learn --rounds 3", "--rounds can't be used with --learn"),
        ("--learn --env Pung", "did you mean Pong?"),
        ("--learn --env Pong,Breakout", "--env takes one game, not 'Pong,Breakout'"),
        ("--learn --seeds 0", "--seeds is 0"),
        ("--learn --score nan", "--score is nan"),
        ("--learn --minutes 0", "--minutes is 0"),
        ("--learn --peers sb3", "unknown system 'sb3'"),
        ("--learn --steps x", "--steps: 'x' is not a whole number"),
    ],
)
def test_bad_input(capsys, words, message):
    assert compare_peers.main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
