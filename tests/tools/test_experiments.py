from __future__ import annotations

import dataclasses

import pytest
from experiments import papers, table
from planned import plan


@pytest.mark.parametrize("experiment", papers.EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_experiments_are_whole(tmp_path, experiment):
    """Every setting is a configuration that exists, and differs from every other; the picture's axes are metrics."""
    wanted = plan(tmp_path, experiment)
    configs = [dataclasses.replace(training.config, name="") for training in wanted]
    assert len(wanted) == len(experiment.settings) and experiment.reference in experiment.settings
    assert all(a != b for i, a in enumerate(configs) for b in configs[:i])
    assert len({setting.label for setting in experiment.settings.values()}) == len(wanted)
    known = {"step", "seconds", "score_mean", "tps", "agents", "predictors", "trainers"}
    assert {key for panel in experiment.panels for key in panel} <= known


def test_the_papers_environment_if_it_is_there(monkeypatch):
    for found, env in ((None, "gunreal/NavMazeStatic-v0"), (object(), "dmlab/nav_maze_static_01")):
        monkeypatch.setattr(table.importlib.util, "find_spec", lambda name, found=found: found)
        assert papers.EXPERIMENTS["fig13"].env() == env
