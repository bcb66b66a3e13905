from __future__ import annotations

import sys

import numpy as np
import pytest
from metrics_runs import make_run

from gunreal.config.schema import ConfigError
from gunreal.records import curves

Curve = curves.Curve


def test_read_leaves_out_nulls(tmp_path):
    curve = curves.read(make_run(tmp_path, "a", [None, 1, None, 3]), "seconds", "score_mean")
    assert curve.label == "a" and curve.x.tolist() == [2, 6] and curve.y.tolist() == [1, 3]


def test_smooth():
    values = np.array([0.0, 3, 6, 9, 0])
    assert curves.smooth(values, 1).tolist() == values.tolist()
    assert curves.smooth(values, 3).tolist() == [1.5, 3, 6, 5, 4.5]
    assert curves.smooth(values, 99).tolist() == curves.smooth(values, 10**30 + 1).tolist() == [3.6] * 5


@pytest.mark.parametrize("runs", range(2, 6))
def test_band_of_few_runs_is_their_range(runs):
    values = np.random.default_rng(runs).normal(size=(runs, 4))
    (band,) = curves.merge("q", [Curve(str(row), np.arange(4.0), row) for row in values])
    assert band.low == pytest.approx(values.min(axis=0)) and band.high == pytest.approx(values.max(axis=0))


def test_merge_over_the_common_part():
    x = np.array([0.0, 100, 200])
    (band,) = curves.merge("pc", [Curve("a", x, x), Curve("b", x, 3 * x), Curve("c", x[:2], 10 * x[:2])])
    assert (band.label, band.runs, band.x.tolist()) == ("pc", 3, [0, 100])
    assert (band.low.tolist(), band.y.tolist(), band.high.tolist()) == ([0, 100], [0, 300], [0, 1000])
    assert [[part.tolist() for part in tail] for tail in band.tails] == [
        [[100, 200], [100, 200]],
        [[100, 200], [300, 600]],
    ]


def test_values_between_points_are_interpolated():
    a, b = np.array([0.0, 100, 200]), np.array([50.0, 150])
    (band,) = curves.merge("q", [Curve("q_1", a, a), Curve("q_2", b, b + 10)])
    assert band.x.tolist() == [50, 100, 150]
    assert band.y.tolist() == [55, 105, 155] and band.low.tolist() == [50, 100, 150]
    assert [[part.tolist() for part in tail] for tail in band.tails] == [[[150, 200], [150, 200]]]


def test_merge_of_long_runs_keeps_their_ends():
    x = np.arange(5000.0)
    (band,) = curves.merge("q", [Curve("a", x, x), Curve("b", x, x + 2)])
    assert len(band.x) == 500 and band.x[[0, -1]].tolist() == [0, 4999] and band.y == pytest.approx(band.x + 1)


def test_runs_without_a_common_part_are_not_merged():
    members = [Curve("a_1", np.array([0.0, 1]), np.zeros(2)), Curve("a_2", np.array([5.0, 9]), np.zeros(2))]
    assert [curve.label for curve in curves.merge("a", members)] == ["a (a_1)", "a (a_2)"]


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn. None is written."""
    module, drawn = pytest.importorskip("matplotlib.figure"), []
    monkeypatch.setattr(module.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    return drawn


def names(figure) -> list[str]:
    """The texts of its legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_axes_say_what_they_show(tmp_path, figures):
    """Labels with units and the smoothing, one legend, a color for each curve, the same in both panels."""
    paths = [make_run(tmp_path, name, [0, i, 2 * i, 1]) for i, name in enumerate(("a-s1", "a-s2", "b"))]
    drawn = curves.panels({"all": paths[:2], "b": paths[2:]}, [("step", "score_mean"), ("seconds", "score_mean")], 3)
    curves.draw(drawn, tmp_path / "a.svg", title="a title", note="a note", width=3)
    left, right = figures[0].axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("agent steps", "training time (seconds)")
    assert left.get_ylabel() == "score (mean of the last 100 episodes),\nmoving mean over 3 lines of metrics"
    assert names(figures[0]) == ["all, 2 seeds", "b"]
    colors = [[line.get_color() for line in axes.lines] for axes in (left, right)]
    assert colors[0] == colors[1] and len(set(colors[0])) == 2
    assert left.lines[0].get_ydata() == pytest.approx([0.25, 0.5, 5 / 6, 1])
    assert figures[0].legends[0].get_title().get_text() == "a title" and figures[0].get_supxlabel() == "a note"


def test_a_curve_that_a_panel_lacks(tmp_path, figures):
    """The others keep their colors, and the legend has every curve once."""
    x = np.array([0.0, 1])
    a, b, c = (Curve(label, x, x) for label in "abc")
    curves.draw(
        [curves.Panel("step", "y", [b, c]), curves.Panel("step", "y", [a, b._replace(runs=3)])], tmp_path / "a.svg"
    )
    assert names(figures[0]) == ["b, 1 to 3 seeds", "c", "a"]
    left, right = ([line.get_color() for line in axes.lines] for axes in figures[0].axes)
    assert left[0] == right[1] and len({*left, *right}) == 3
    shown = [line.get_color() for line in figures[0].legends[0].get_lines()]
    assert shown == [*left, right[0]]


def test_a_single_point_is_visible_with_its_band(tmp_path, figures):
    at, y = np.array([5.0]), np.array([2.0])
    x = np.array([0.0, 9])
    drawn = [Curve("point", at, y, y - 1, y + 2), Curve("alone", at, y), Curve("line", x, x, x - 1, x + 1)]
    curves.draw([curves.Panel("step", "y", drawn)], tmp_path / "a.svg")
    (axes,) = figures[0].axes
    assert [line.get_marker() for line in axes.lines] == ["o", "o", "None"]
    bar, _ = axes.collections
    assert bar.get_segments()[0].tolist() == [[5, 1], [5, 4]]


def test_a_curve_its_band_and_its_tails_are_in_the_unit_of_the_axis(tmp_path, figures):
    x = np.array([0.0, 7200])
    tail = (np.array([7200.0, 10800]), np.zeros(2))
    curves.draw([curves.Panel("seconds", "y", [Curve("a", x, x, x - 1, x + 1, tails=(tail,))])], tmp_path / "a.svg")
    (axes,) = figures[0].axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [[0, 2], [2, 3]]
    (band,) = axes.collections
    assert band.get_paths()[0].vertices[:, 0].max() == 2


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'gunreal\[plot\]'"):
        curves.check_matplotlib()
