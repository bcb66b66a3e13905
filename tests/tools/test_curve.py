from __future__ import annotations

import pytest
from peers import curve

from gunreal.records import metrics


def written(monkeypatch, tmp_path, steps=100, every=5.0):
    now = [100.0]
    monkeypatch.setattr(curve.time, "monotonic", lambda: now[0])
    return curve.Curve(tmp_path, steps, every), now


def test_a_curve_is_metrics_that_gunreal_reads(monkeypatch, tmp_path):
    made, now = written(monkeypatch, tmp_path)
    now[0] = 150.0  # imports and environments
    made.start()
    assert made.report(10)
    now[0] = 155.0
    made.episode(2.0), made.episode(4.0)
    assert made.report(40) and not made.report(104)
    now[0] = 156.5
    made.close()
    assert metrics.read(tmp_path / metrics.FILE) == [
        {"step": 40, "seconds": 5.0, "episodes": 2, "score_mean": 3.0, "score_max": 4.0},
        {"step": 104, "seconds": 6.5, "episodes": 2, "score_mean": 3.0, "score_max": 4.0, "stopped_by": "steps"},
    ]


def test_scores_of_other_processes_are_taken_over_once(monkeypatch, tmp_path):
    made, _ = written(monkeypatch, tmp_path, every=0.0)
    curve.append_score(made.scores_file, -21), curve.append_score(made.scores_file, 3.5)
    made.report(1)
    with open(made.scores_file, "a") as file:
        file.write("7")  # not whole yet
    made.report(2)
    curve.append_score(made.scores_file, 0)
    made.report(3)
    found = [(line["episodes"], line["score_mean"]) for line in metrics.read(tmp_path / metrics.FILE)]
    assert found == [(2, -8.75), (2, -8.75), (3, pytest.approx(52.5 / 3))]


def test_scores_of_the_last_hundred_episodes_count(monkeypatch, tmp_path):
    made, _ = written(monkeypatch, tmp_path, every=0.0)
    for score in range(150):
        made.episode(score)
    made.report(1)
    (line,) = metrics.read(tmp_path / metrics.FILE)
    assert line["episodes"] == 150 and line["score_mean"] == pytest.approx(sum(range(50, 150)) / 100)
