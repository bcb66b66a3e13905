"""Time to a score: systems that only look like training, until they have it."""

from __future__ import annotations

import json
import os

import compare_peers
import pytest
from peer_standins import TOOLS, learner, leave, lines
from peers import contestants, learning
from peers import jobs as peer_jobs
from peers.table import LEARNING

from gunreal.config.folders import prepare_run_dir
from gunreal.config.schema import Config, ConfigError

LEARNS = """
curve.start()
step = 0
while curve.report(step):
    step += 10
    curve.episode(step / 100)
    time.sleep(0.002)
"""


def limits(tmp_path, known, seeds=1, **options):
    given = {"steps": 900, "our_steps": 400, "seeds": seeds, "logdir": tmp_path, "known": known, "score": 18.0}
    return given | options


def planned(tmp_path, labels="gunreal-tasks,sb3-ppo:envs=4", rest=(), **options):
    chosen = contestants.parse(labels, (), rest, LEARNING, "learn")
    known = {system.label: {"settings": system.settings, "versions": {}} for system in chosen}
    return peer_jobs.plan(chosen, "Qbert", **limits(tmp_path, known, **options))


def test_numbers_and_table(tmp_path):
    chosen = contestants.parse("gunreal,sf", [], [], LEARNING, "learn")
    known = {"sf": {"settings": {}, "versions": {}}}
    jobs = peer_jobs.plan(chosen, "Pong", **limits(tmp_path, known, seeds=3))
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
    for job in peer_jobs.plan(chosen, "Pong", **limits(tmp_path, known), minutes=3.0):  # lines are a minute apart
        leave(job.path, lines(0, 1, 2, ended=False))
        assert job.over()
    for job in peer_jobs.plan(chosen, "Pong", **limits(tmp_path, known), minutes=4.0):
        assert not job.over()


def test_every_system_trains_with_every_seed(tmp_path):
    jobs = planned(tmp_path, rest=["--entropy", "0.03"], seeds=2)
    assert [job.name for job in jobs] == [
        *("Qbert-gunreal-tasks-s1", "Qbert-sb3-ppo_envs_4-s1"),
        *("Qbert-gunreal-tasks-s2", "Qbert-sb3-ppo_envs_4-s2"),
    ]
    assert [job.steps for job in jobs[:2]] == [400, 900]
    config = jobs[2].planned.config
    assert (config.env, config.seed, config.tasks, config.entropy) == ("ALE/Qbert-v5", 2, ("pc", "vr", "rp"), 0.03)
    words = jobs[3].next().words
    assert words[1:3] == [str(TOOLS / "train_peer.py"), "sb3-ppo"] and json.loads(words[4]) == {"envs": 4}
    assert words[5:] == ["--game", "Qbert", "--steps", "900", "--seed", "2", "--out", str(jobs[3].path)]
    with pytest.raises(ConfigError, match="--seed is set by this command"):
        planned(tmp_path, rest=["--seed", "5"])
    run = prepare_run_dir(Config(logdir=str(tmp_path), name="run", tasks=("pc", "vr", "rp")))
    with pytest.raises(ConfigError, match="--resume can't be used here"):  # its settings would be taken over
        planned(tmp_path, rest=["--resume", str(run)])


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_of_another_configuration_is_rejected(tmp_path, ended):
    """Also an unfinished one, which would be removed and start again."""
    job = planned(tmp_path)[1]
    job.prepare()
    leave(job.path, lines(1, 2, ended=ended))
    job.check()
    with pytest.raises(ConfigError, match="has steps 900, not 2000; choose another --logdir"):
        planned(tmp_path, steps=2000)[1].check()
    (job.path / "job.json").write_text('{"game"')
    with pytest.raises(ConfigError, match="Qbert-sb3-ppo_envs_4-s1 is not a run of another system"):
        job.check()


def test_a_run_that_ended_at_lower_limits_is_kept(tmp_path):
    given = {"score": 18.0, "minutes": 3.0}
    job = planned(tmp_path, **given)[1]
    job.prepare()
    leave(job.path, lines(1, 2, ended=False))
    planned(tmp_path, minutes=5.0)[1].check()  # cut off: it starts again
    leave(job.path, [*lines(1, 2, 3, ended=False), lines(1, 2, 3)[-1] | {"stopped_by": "SIGINT"}])
    for same in (given, {"score": 2.0}):
        planned(tmp_path, **same)[1].check()
    for raised in ({"score": 18.0, "minutes": 5.0}, {"score": 18.0}):
        with pytest.raises(ConfigError, match="s1 has ended at --score 18 --minutes 3; use these limits"):
            planned(tmp_path, **raised)[1].check()


def test_systems_train_without_a_gpu(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    python = learner(tmp_path / "python", "print('GPUs', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n" + LEARNS)
    words = ["--learn", "--peers", "sb3-ppo", "--python", f"sb3={python}", "--steps", "100", "--cores", "1"]
    assert compare_peers.main([*words, "--logdir", str(tmp_path / "runs")]) == 0
    assert "GPUs ''" in (tmp_path / "runs" / "Pong-sb3-ppo-s1.log").read_text()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


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
