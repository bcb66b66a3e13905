from __future__ import annotations

import json
from pathlib import Path

import pytest
from metrics_runs import make_run

from gunreal import plot


def make_runs(folder: Path, *names: str) -> list[Path]:
    return [make_run(folder, name, [0, 1]) for name in names]


def test_seeds_are_one_group(tmp_path):
    pc1, pc2, pc10, vr, alone = make_runs(tmp_path, "pc-s1", "pc-s2", "pc-s10", "vr", "rp-s7")
    groups = plot.group([str(pc1), str(vr), "pc-s2", "pc-s10", "rp-s7"], str(tmp_path))
    assert groups == {"pc": [pc1, pc2, pc10], "vr": [vr], "rp-s7": [alone]}


@pytest.mark.parametrize("names", [("pc", "vr"), ("Pong-v5", "Pong-v4"), ("a-20251121-093800", "a-20251121-093801")])
def test_other_names_are_not_grouped(tmp_path, names):
    assert plot.group(names, str(make_runs(tmp_path, *names)[0].parent)).keys() == set(names)


def test_runs_of_other_folders_are_other_curves(tmp_path):
    old = make_runs(tmp_path / "old", "pong-s1", "pong-s2", "qbert")
    new = make_runs(tmp_path / "new", "pong-s1", "pong-s2")
    top = make_runs(tmp_path, "vr", "vr-s2")
    groups = plot.group([*map(str, [*old, *new]), "vr"], str(tmp_path))
    assert groups == {"old/pong": old[:2], "new/pong": new, "qbert": old[2:], "vr": top[:1]}
    inner = make_runs(tmp_path / "old" / "x", "vr") + make_runs(tmp_path / "new" / "x", "vr")
    groups = plot.group(["vr", "vr-s2", *map(str, inner)], str(tmp_path))
    assert groups == {f"{tmp_path.name}/vr": top, f"{tmp_path.name}/old/x/vr": inner[:1],
                      f"{tmp_path.name}/new/x/vr": inner[1:]}  # fmt: skip


def test_a_run_that_is_given_twice_or_by_a_link_is_drawn_once(tmp_path):
    one, two = make_runs(tmp_path, "base-s1", "base-s2")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "newest-base-s1").symlink_to(one.name)
    for given in (["base-s1", str(one), f"{tmp_path}/link/base-s1"], ["base-s1"]):
        assert plot.group(given, str(tmp_path)) == {"base-s1": [one]}
    for given in (["base=*base-s?"], ["base=*base-s?", "base=base-s*", "base-s2"]):
        assert plot.group(given, str(tmp_path)) == {"base": [one, two]}
    assert plot.group(["newest-base-s1"], str(tmp_path)) == {"newest-base-s1": [one]}


def test_groups_can_be_switched_off(tmp_path):
    make_runs(tmp_path, "pc-s1", "pc-s2")
    assert list(plot.group(["pc-s1", "pc-s2"], str(tmp_path), suffix="")) == ["pc-s1", "pc-s2"]


def test_labels_with_patterns(tmp_path, monkeypatch):
    old, new, other = make_runs(tmp_path, "old-s1", "new-s2", "other")
    (tmp_path / "old-s1.log").touch()
    assert plot.group([f"all of it={tmp_path}/*-s?"]) == {"all of it": [new, old]}
    assert plot.group(["both=o*", "b=new-s2"], str(tmp_path)) == {"both": [old, other], "b": [new]}
    monkeypatch.chdir(tmp_path)
    assert plot.group(["both=*-s?"]) == {"both": [Path("new-s2"), Path("old-s1")]}
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    home = f"~/{tmp_path.name}"
    assert plot.group(["a=new*"], home) == plot.group([f"a={home}/new*"]) == {"a": [new]}  # a shell leaves this ~
    (there,) = make_runs(tmp_path / "there", "new-s2")
    assert plot.group(["a=new*"], str(there.parent)) == {"a": [there]}  # first in logdir, then here


def test_a_name_with_an_equals_sign_is_a_run(tmp_path):
    (path,) = make_runs(tmp_path, "lr=0.1")
    assert plot.group(["lr=0.1"], str(tmp_path)) == {"lr=0.1": [path]}


def test_command_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    import cv2

    paths = [make_run(tmp_path, name, [None, -1, 0, i]) for i, name in enumerate(("a-s1", "a-s2", "b"))]
    out = tmp_path / "curves.png"
    common = ["--logdir", str(tmp_path), "--out", str(out)]
    assert plot.main(["plot", *map(str, paths[:2]), "b", "--x", "seconds", *common]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    picture = cv2.imread(str(out))
    assert picture.shape == (750, 1200, 3) and picture.std() > 5
    assert plot.main(["plot", "$a_=*", "--title", "$b_$", "--smooth", "3", *common]) == 0  # steps and time side by side
    assert cv2.imread(str(out)).shape == (750, 1800, 3)


def test_evaluations_are_drawn_at_the_step_of_their_weights(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path, found = make_run(tmp_path, "a", [0, 1]), []
    lines = [{"step": 30, "seconds": 3, "eval_step": 20, "eval_score_mean": 1.0}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(plot.curves, "draw", lambda drawn, *_: found.append(drawn))
    for options in (["--y", "eval_score_mean"], ["--y", "eval_score_mean", "--x", "step"], ["--y", "seconds"]):
        assert plot.main(["plot", str(path), *options]) == 0
    evaluated, given, other = ([(panel.x, panel.curves[0].x.tolist()) for panel in drawn] for drawn in found)
    assert evaluated == [("eval_step", [20]), ("seconds", [3])] and given == [("step", [30])]
    assert [x for x, _ in other] == ["step", "seconds"]
