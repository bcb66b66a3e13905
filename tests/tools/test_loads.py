"""The load experiments: measured in rounds, gone on with, drawn, and really measured at a small size."""

from __future__ import annotations

import json
from multiprocessing import resource_tracker

import pytest
import reproduce
from experiments import loads, loads_report, saved
from experiments.loads import Measurement
from measuring import loads as measuring

from gunreal.config.checks import check

ROW = {"steps": 100.0, "updates": 2.0, "gpu": [70.0, 90.0]}


@pytest.fixture(scope="module", autouse=True)
def _no_process_stays():
    """Other tests look at all children of this process, and memory that is shared here starts one."""
    yield
    resource_tracker._resource_tracker._stop()


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Every measurement asked for; `answers` are given in turn, exceptions are raised."""
    monkeypatch.chdir(tmp_path)
    asked, answers = [], []

    def rate(load, config, seconds, patience):
        asked.append((load, config.runner, config.agents, seconds))
        answer = answers.pop(0) if answers else dict(ROW)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(loads.loads, "rate", rate)
    monkeypatch.setattr(loads.loads, "course", lambda config, steps: [
        {"step": 8 * i, "rate": 10.0 * i, "resets": i % 2} for i in range(1, steps // 8 + 1)
    ])  # fmt: skip
    rate.asked, rate.answers = asked, answers
    return rate


@pytest.mark.parametrize("experiment", loads.EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_experiments_are_whole(tmp_path, measured, experiment):
    """Every measurement has a configuration, and each experiment is measured, drawn and put in a table."""
    pytest.importorskip("matplotlib")
    assert len(set(experiment.measurements)) == len(experiment.measurements)
    for of in experiment.measurements:
        check(of.config(), frozenset())
        assert of.env in experiment.envs
    assert reproduce.main([experiment.name, "--tiny"]) == 0
    out = tmp_path / "runs" / experiment.name / f"{experiment.name}.png"
    assert out.stat().st_size > 10_000
    numbers = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert numbers and all(row["agents"] == 8 and row["env"] == experiment.envs[0] for row in numbers)
    assert out.with_suffix(".md").read_text().startswith(f"**{experiment.title}**")


def test_rounds_alternate_go_on_and_survive_failures(tmp_path, measured, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    words = ["cule-table6", "--rounds", "2", "--tiny", "--logdir", "runs"]
    measured.answers[:] = [RuntimeError("no\nmemory")]
    count = len(loads.chosen(loads.EXPERIMENTS["cule-table6"], tiny=True).measurements)
    assert reproduce.main(words) == 1
    assert "RuntimeError: no\n" in capsys.readouterr().out
    assert len(measured.asked) == 2 * count - 1 and {seconds for *_, seconds in measured.asked} == {0.3}
    del measured.asked[:]
    measured.answers[:] = [ROW | {"steps": 300.0}]
    assert reproduce.main(words) == 0 and len(measured.asked) == 2  # of the one that failed
    assert reproduce.main(words) == 0 and len(measured.asked) == 2
    rows = json.loads((tmp_path / "runs" / "cule-table6.json").read_text())["rows"]
    assert rows[0]["steps"] == 200 and rows[0]["range"] == [100, 300] and rows[0]["rounds"] == 2
    text = (tmp_path / "runs" / "cule-table6.md").read_text()
    assert "| 200 | 800 | 100 | 2.0 | 70 to 90 % | - |" in text
    assert "| 100 | 400 | 50 | 2.0 | 70 to 90 % | 2.00 |" in text
    capsys.readouterr()
    assert reproduce.main([*words, "--seconds", "0.1"]) == 2
    assert "cule-table6.rounds.json was measured with seconds 0.3, not 0.1; choose" in capsys.readouterr().err
    monkeypatch.setattr(saved.machine, "machine", lambda: {"processor": "another", "gpus": ["H100"]})
    assert reproduce.main(words) == 2 and "not 'another and H100'; choose" in capsys.readouterr().err
    assert len(measured.asked) == 2


def test_curves_have_a_band_over_the_games():
    found = [
        (Measurement("emulation", engine, env, agents), {"steps": rate})
        for engine, env, agents, rate in (
            ("device", "ALE/Pong-v5", 32, 10.0), ("device", "ALE/Boxing-v5", 32, 30.0),
            ("device", "ALE/Pong-v5", 8, 5.0), ("cpu", "ALE/Pong-v5", 8, 7.0),
        )
    ]  # fmt: skip
    (panel,) = loads_report.panels(found)
    device, cpu = panel.curves
    assert device.x.tolist() == [8, 32] and device.y.tolist() == [5, 20]
    assert device.low.tolist() == [5, 10] and device.high.tolist() == [5, 30] and cpu.y.tolist() == [7]


@pytest.mark.parametrize("engine", ["device", "cpu"])
def test_environments_and_predictions_are_really_measured(engine):
    pytest.importorskip("jax")
    config = Measurement("emulation", engine, "gunreal/Catch-v0", 4).config()
    for load in ("emulation", "inference"):
        assert measuring.rate(load, config, 0.1, 60.0)["steps"] > 0


def test_a_course_counts_the_ends_of_episodes():
    """Catch ends after 9 steps, in all environments at once."""
    pytest.importorskip("jax")
    course = measuring.course(Measurement("course", "device", "gunreal/Catch-v0", 4).config(), 24)
    assert [at["step"] for at in course] == [8, 16, 24] and [at["resets"] for at in course] == [0, 4, 4]
    assert all(at["rate"] > 0 for at in course)
