"""The trained agents of the folder `zoo`, and the tool that adds a run to them."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from trained import catch_run

import gunreal
import zoo
from gunreal import hub, listing
from gunreal.__main__ import main as command
from gunreal.config import folders
from gunreal.config.flags import from_flags
from gunreal.config.resolve import OF_MACHINE
from gunreal.records import card
from gunreal.runtime import starting
from gunreal.train import prepare

pytest.importorskip("huggingface_hub")
pytest.importorskip("matplotlib")
pytest.importorskip("imageio_ffmpeg")


def test_an_evaluation_has_the_score_of_the_card(capsys):
    assert command(["gunreal", "evaluate", "zoo:catch", "--episodes", "100", "--json"]) == 0
    scores = card.read(folders.zoo()["catch"]).scores
    assert scores["episodes"] == 100
    assert json.loads(capsys.readouterr().out)["mean"] == pytest.approx(scores["mean"], abs=0.05)


def test_all_agents_fit_this_version_and_have_their_cards(capsys):
    """Otherwise, `python tools/zoo.py cards` writes their settings and cards again."""
    assert listing.main("zoo", ["gunreal zoo"]) == 0
    out = capsys.readouterr().out
    for name, folder in folders.zoo().items():
        found = card.read(folder)
        again = prepare(from_flags(shlex.split(found.command)[1:])[0]).config
        own = {name: getattr(found.config, name) for name in (*card.PRIVATE, *OF_MACHINE)}
        assert dataclasses.replace(again, **own) == found.config
        assert f"zoo:{name}: {found.config.env}, score {found.scores['mean']:.2f} " in out and found.command in out
        assert (folder / "README.md").read_text() == card.text(folder, f"zoo:{name}")


@pytest.mark.parametrize("words", ["evaluate zoo:cach", "export zoo:cach policy.keras", "watch zoo:cach"])
def test_an_unknown_agent_is_refused_with_a_suggestion(words, capsys):
    assert command(["gunreal", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.endswith("the zoo has no 'cach'; did you mean catch?\n") and err.count("\n") == 1


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "gunreal" / "config" / "folders.py"))
    monkeypatch.setitem(sys.modules, "gunreal_zoo", None)
    with pytest.raises(gunreal.ConfigError, match="run pip install gunreal-zoo$"):
        gunreal.load("zoo:catch")


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """An empty zoo."""
    root = tmp_path / "zoo" / "gunreal_zoo"
    root.mkdir(parents=True)
    monkeypatch.setattr(zoo, "ROOT", root)
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "gunreal" / "config" / "folders.py"))
    return root


def test_a_run_that_is_added_is_a_policy_in_half_precision(agents, tmp_path, tmp_path_factory, monkeypatch, capsys):
    trained = catch_run(tmp_path_factory.getbasetemp())
    assert zoo.main(["add", str(trained), "small", "--episodes", "4"]) == 0
    assert "as float16" in capsys.readouterr().out
    run, (weights,) = gunreal.load("zoo:small"), (agents / "small" / "checkpoints").glob("*")
    with np.load(weights) as saved:
        kinds = {saved[name].dtype for name in saved.files if name.startswith("weights/")}
        assert kinds == {np.dtype("float16")} and not any("optimizer" in name or "pc/" in name for name in saved.files)
    assert run.evaluate(4).tolist() == card.read(agents / "small").scores["scores"]
    assert run.learner.network.tasks == run.heads == () and run.config.tasks == ("pc",)
    assert run.video(tmp_path / "small.mp4", max_steps=2).exists()
    for budget in ({}, {"steps": 800}):
        with pytest.raises(gunreal.ConfigError, match="start a new run with --init"):
            gunreal.resume("zoo:small", show=False, **budget)
    assert starting.load(gunreal.Config(init="zoo:small")).step == run.step
    assert zoo.main(["add", str(trained), "small"]) == 2 and "exists already" in capsys.readouterr().err

    def upload(repo_id, fill, message, **_):
        fill(Path(tmp_path, "uploaded"))
        return repo_id

    monkeypatch.setattr(hub, "upload", upload)
    assert zoo.main(["push", "me"]) == 0 and capsys.readouterr().out == "me/gunreal-small\n"
    assert "gunreal pull me/gunreal-small" in (tmp_path / "uploaded" / "README.md").read_text()
    assert gunreal.load(tmp_path / "uploaded").step == run.step
