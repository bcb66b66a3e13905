from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from gunreal.config import Config
from gunreal.runs import prepare_run_dir

specification = importlib.util.spec_from_file_location("plot", Path(__file__).parents[1] / "tools" / "plot.py")
plot = importlib.util.module_from_spec(specification)
specification.loader.exec_module(plot)
Curve = plot.Curve


def make_run(folder: Path, name: str, scores: list[float | None]) -> Path:
    """A run with a line of metrics every 100 steps and 2 seconds."""
    path = prepare_run_dir(Config(logdir=str(folder), name=name))
    lines = [{"step": 100 * i, "seconds": 2.0 * i, "score_mean": score} for i, score in enumerate(scores)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_read_leaves_out_nulls(tmp_path):
    curve = plot.read(make_run(tmp_path, "a", [None, 1, None, 3]), "seconds", "score_mean")
    assert curve.label == "a" and curve.x.tolist() == [2, 6] and curve.y.tolist() == [1, 3]


def test_smooth():
    values = np.array([0.0, 3, 6, 9, 0])
    assert plot.smooth(values, 1).tolist() == values.tolist()
    assert plot.smooth(values, 3).tolist() == [1.5, 3, 6, 5, 4.5]
    assert plot.smooth(values, 99).tolist() == [3.6] * 5


def test_seeds_are_one_curve():
    x = np.array([0.0, 100, 200])
    curves = [Curve("pc-s1", x, x), Curve("pc-s2", x, 3 * x), Curve("pc-s10", x[:2], 10 * x[:2]), Curve("vr", x, -x)]
    band, alone = plot.group(curves)
    assert band.label == "pc (3 runs)" and alone == curves[3]
    assert band.x.tolist() == [0, 100]  # what all have
    assert (band.low.tolist(), band.y.tolist(), band.high.tolist()) == ([0, 100], [0, 300], [0, 1000])


def test_values_between_points_are_interpolated():
    a, b = np.array([0.0, 100, 200]), np.array([50.0, 150])
    (band,) = plot.group([Curve("q_1", a, a), Curve("q_2", b, b + 10)])
    assert band.x.tolist() == [50, 100, 150]
    assert band.y.tolist() == [55, 105, 155] and band.low.tolist() == [50, 100, 150]


@pytest.mark.parametrize("names", [("pc", "vr"), ("Pong-v5", "Pong-v4"), ("a-20251121-093800", "a-20251121-093801")])
def test_other_names_are_not_grouped(names):
    curves = [Curve(name, np.arange(3.0), np.arange(3.0)) for name in names]
    assert plot.group(curves) == curves


def test_runs_without_a_common_part_are_not_grouped():
    curves = [Curve("a_1", np.array([0.0, 1]), np.zeros(2)), Curve("a_2", np.array([5.0, 9]), np.zeros(2))]
    assert plot.group(curves) == curves


def test_command_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    import cv2

    paths = [make_run(tmp_path, name, [None, -1, 0, i]) for i, name in enumerate(("a-s1", "a-s2", "b"))]
    out = tmp_path / "curves.png"
    assert plot.main([*map(str, paths[:2]), "b", "--logdir", str(tmp_path), "--x", "seconds", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    picture = cv2.imread(str(out))
    assert picture.shape == (750, 1200, 3) and picture.std() > 5


def test_bad_input(tmp_path, capsys):
    path = str(make_run(tmp_path, "a", [None, 1]))
    pytest.importorskip("matplotlib")
    for arguments, message in (
        ([path + "x"], "there is no run"),
        ([path, "--y", "score"], "no values of score over step; it has score_mean, seconds, step"),
        ([path, "--smooth", "2"], "odd number"),
        ([path, "--group", "["], "no regular expression"),
        ([path, "--out", str(tmp_path / "none" / "a.png")], "No such file"),
        ([path, "--out", str(tmp_path / "a.abc")], "abc"),
    ):
        assert plot.main(arguments) == 2
        assert message in capsys.readouterr().err
