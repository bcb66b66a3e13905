from __future__ import annotations

import json
import signal

import pytest
import reproduce
from experiments import dispatcher, jobs, table
from planned import CATCH, TOOLS, curve, make_run, plan, small
from training import Training, is_gone, wait_until


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fig131", "unknown experiment 'fig131'; did you mean fig13?; available: fig7, fig13"),
        ("ga3c-fig", "unknown experiment 'ga3c-fig'; did you mean ga3c-fig"),
        ("ablation --settings pc,vp", "ablation has no setting 'vp'; available: base, pc+vr+rp, pc, vr, rp"),
        ("ablation --seeds 0", "--seeds is 0, but must be at least 1"),
        ("ablation --smooth 2", "--smooth is 2, but must be an odd number"),
        ("ablation --steps many", "--steps: 'many' is not a whole number"),
        ("ablation --minutes 0", "--minutes is 0, but must be positive"),
        ("ablation --minutes inf", "--minutes is inf, but must be positive"),
        ("ablation --seconds 3", "--seconds can't be used with ablation, a learning experiment; leave it out"),
        ("ablation --rounds 3", "--rounds can't be used with ablation, a learning experiment; leave it out"),
        ("ga3c-fig2 --draw", "no run of ga3c-fig2 in runs/Catch-v0 has trained yet"),
        ("ga3c-fig2 -- --scheduler off", "setting queue of ga3c-fig2 has scheduler 'queue'"),
        ("ablation --seed 3", "--seed"),
        ("", "required: EXPERIMENT"),
        ("ablation --draw", "no run of ablation in runs/Catch-v0 has a score yet"),
        ("ablation --env gunreal/Catsh-v0", "unknown environment 'gunreal/Catsh-v0'"),
        ("ablation --env CartPole-v1", "task 'pc' does not fit CartPole-v1"),
        ("ablation --env CartPole-v1 --settings base --logdir file", "can't write to file"),
        ("ba3c-fig6 --env ALE/Pong-v5", "ba3c-fig6 has fixed settings; leave out --env and flags after --"),
        ("ba3c-fig6 -- --network large", "ba3c-fig6 has fixed settings; leave out --env and flags after --"),
        ("ablation -- --tasks pc", "of ablation has tasks"),
        ("ablation -- --tasks pc,vr,rp", "of ablation has tasks"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, words, message):
    """One line, exit code 2, nothing started and nothing left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table.Experiment, "env", lambda self: CATCH)
    monkeypatch.setattr(dispatcher.subprocess, "Popen", None)
    (tmp_path / "file").touch()
    assert reproduce.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert err.startswith("reproduce.py: ") and err.count("\n") == 1 and message in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_draw_needs_no_process(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(dispatcher.subprocess, "Popen", None)
    for training in plan(tmp_path, small("base", "pc"), 2)[:3]:
        make_run(training, *curve(1, 2, 3))
    assert reproduce.main(["ablation", "--env", CATCH, "--logdir", str(tmp_path), "--draw"]) == 0
    assert f"{tmp_path}/ablation.png, .md, .json" in capsys.readouterr().out
    assert json.loads((tmp_path / "ablation.json").read_text())["target"] == 3
    assert (tmp_path / "ablation.png").stat().st_size > 10_000 and "| no task" in (tmp_path / "ablation.md").read_text()


@pytest.mark.timeout(300)
def test_interrupted_and_resumed(tmp_path):
    """The real thing: Ctrl-C in the first of two trainings, the same command again, and a third time."""
    pytest.importorskip("matplotlib")
    flags = ["--agents", 4, "--agents_per_process", 4, "--min_batch", 40, "--hidden", 32, "--metrics_seconds", 0.2]
    words = ["ablation", "--env", CATCH, "--settings", "base,rp", "--seeds", 1, "--logdir", "runs", "--steps", 2500]
    base, rp = plan(tmp_path / "runs", small("base", "rp"), steps=2500)

    def start():
        return Training(tmp_path, *words, "--", *flags, program=(str(TOOLS / "reproduce.py"),))

    with start() as process:
        wait_until(lambda: base.step() > 100 or process.popen.poll() is not None)
        children = process.agents()
        assert process.signal(signal.SIGINT, 60) == 130, process.stderr
    assert all(is_gone(pid) for pid in children)
    assert jobs.stopped_by(base.lines()) == "SIGINT" and not rp.path.exists()
    stopped = base.step()
    with start() as process:
        assert process.end() == 0, process.stderr
    assert base.finished() and rp.finished() and stopped in [line["step"] for line in base.lines()]
    seconds = [line["seconds"] for line in base.lines()]
    assert seconds == sorted(seconds)  # time of training, not of the calendar
    results = json.loads((tmp_path / "runs" / "ablation.json").read_text())
    assert [row["finished"] for row in results["settings"].values()] == [[True], [True]]
    before = base.lines()
    with start() as process:
        assert process.end() == 0, process.stderr
    assert base.lines() == before
