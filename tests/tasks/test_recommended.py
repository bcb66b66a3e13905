"""`--tasks auto`, and the recommendation of `gunreal tasks --env`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trained import short_run

import gunreal
from gunreal import listing
from gunreal.tasks import recommended

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("env", "tasks"),
    [("gunreal/NavMazeStatic-v0", "pc,vr,rp"), ("ALE/Pong-v5", "none"), ("CartPole-v1", "none, because nothing was")],
)
def test_a_recommendation_names_a_page_that_is_there(env, tasks):
    line = recommended.line(env)
    assert line.startswith(f"recommended tasks for {env}: {tasks}")
    assert all((ROOT / page).is_file() for page in re.findall(r"docs/\S+\.md", line))


def test_the_list_ends_with_it(capsys):
    assert listing.main("tasks", ["gunreal tasks", "--env", "gunreal/Catch-v0", "--tasks", "auto"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == recommended.line("gunreal/Catch-v0")


def test_auto_takes_it_and_saves_it(tmp_path, monkeypatch, capsys):
    assert short_run(tmp_path, "none", steps=40, tasks="auto").config.tasks == ()
    assert "recommended tasks for gunreal/Catch-v0: none, because with a delay" in capsys.readouterr().err
    monkeypatch.setitem(recommended.KNOWN, "gunreal/Catch-", recommended.Advice(("vr",), "of this test"))
    run = short_run(tmp_path, "vr", steps=40, tasks="auto")
    assert run.config.tasks == ("vr",) and list(run.config.task) == ["vr"]
    assert gunreal.resume(run, steps=80, tasks="auto", show=False).config.tasks == ("vr",)
