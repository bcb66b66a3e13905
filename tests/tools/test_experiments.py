from __future__ import annotations

import dataclasses
import json

import pytest
from experiments import atari_papers, cule, papers, report, table
from planned import FINISHED, curve, make_run, plan

from gunreal.config.checks import check

LEARNED = papers.EXPERIMENTS | atari_papers.EXPERIMENTS | cule.EXPERIMENTS
FIG6 = atari_papers.EXPERIMENTS["ga3c-fig6"]


@pytest.mark.parametrize("experiment", LEARNED.values(), ids=lambda experiment: experiment.name)
def test_experiments_are_whole(tmp_path, experiment):
    """Every setting is a configuration that exists, and differs from every other; the picture's axes are metrics."""
    for part in experiment.parts():
        wanted = plan(tmp_path, part)
        for training in wanted:
            check(training.config)
        configs = [dataclasses.replace(training.config, name="") for training in wanted]
        assert len(wanted) == len(part.settings) and part.reference in part.settings
        assert all(a != b for i, a in enumerate(configs) for b in configs[:i])
        assert len({setting.label for setting in part.settings.values()}) == len(wanted)
        known = {"step", "seconds", "score_mean", "tps", "agents", "predictors", "trainers"}
        assert {key for panel in part.panels for key in panel} <= known


def test_the_papers_environment_if_it_is_there(monkeypatch):
    for found, env in ((False, "gunreal/NavMazeStatic-v0"), (True, "dmlab/nav_maze_static_01")):
        monkeypatch.setattr(table, "is_installed", lambda name, found=found: found)
        assert papers.EXPERIMENTS["fig13"].env() == env


def test_defaults_of_the_mazes(tmp_path):
    """The library's own normalization does what special settings once did."""
    for name in ("fig7", "fig13", "ablation", "recurrence"):
        assert not papers.EXPERIMENTS[name].common


def test_both_runners_have_the_same_batches():
    """CuLE's groups of environments update in turn; the parallel runner waits for as many rollouts."""
    pong = cule.EXPERIMENTS["cule-table3"].parts()[0]
    assert pong.goal == 18 and cule.EXPERIMENTS["cule-table3"].parts()[1].goal == 1500
    for gym, device in (("gym1200-20", "cule-20"),):
        fields = pong.settings[device].fields
        size = fields["agents"] // fields["device_batches"] * fields["t_max"]
        assert pong.settings[gym].fields["min_batch"] == size == 1200


def test_an_experiment_on_games_has_a_part_for_each(tmp_path):
    parts = atari_papers.EXPERIMENTS["ga3c-table3"].parts()
    assert len(parts) == 9 and [part.name for part in parts[:2]] == ["ga3c-table3-Amidar", "ga3c-table3-Boxing"]
    assert parts[1].envs == ("ALE/Boxing-v5",) and parts[1].settings["ga3c"].paper == {"score": 92}
    assert parts[1].settings["ours"].paper == {} and parts[1].panels == (("step", "score_mean"),)
    constants = atari_papers.EXPERIMENTS["fig10"].settings["gunreal"].fields
    assert (constants["t_max"], constants["min_batch"], constants["correction"]) == (20, 40, "epsilon")
    assert set(atari_papers.EXPERIMENTS["fig10"].settings["base"].fields) == {"tasks"}


def test_games_are_drawn_side_by_side(tmp_path):
    pytest.importorskip("matplotlib")
    for part in FIG6.parts()[:2]:
        for training in plan(tmp_path, part):
            make_run(training, *curve(0, 20, 10), FINISHED)
    whole = report.write_games(FIG6, tmp_path)
    assert whole["games"].keys() == {"Pong", "Qbert"}  # Breakout has not begun
    assert json.loads((tmp_path / "ga3c-fig6.json").read_text()) == whole
    text = (tmp_path / "ga3c-fig6.md").read_text()
    assert "**Pong** on" in text and "**Qbert** on" in text and text.count("GA3C's constants, learning rate 1e-4") == 2
    assert (tmp_path / "ga3c-fig6.png").stat().st_size > 10_000
