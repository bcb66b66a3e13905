from __future__ import annotations

import json

import pytest
from metrics_runs import make_run

import gunreal
from gunreal.__main__ import main

BOTH = ["base=base-s?", "tasks=tasks-s?"]


@pytest.fixture
def logdir(tmp_path):
    for name, final in (("base-s1", 1), ("base-s2", 2), ("tasks-s1", 3), ("tasks-s2", 5)):
        make_run(tmp_path, name, [0, final])
    return str(tmp_path)


def test_the_table_names_the_settings_and_the_verdict(logdir, capsys):
    assert main(["gunreal", "compare", *BOTH, "--logdir", logdir, "--score", "3"]) == 0
    title, _, head, base, tasks, _, verdict = capsys.readouterr().out.splitlines()
    assert title == "ALE/Pong-v5, score of the last 100 training episodes"
    assert head.split("  ")[0] == "setting" and "  steps to 3 " in head and head.endswith("minutes to 3")
    assert base.startswith("base     2, 2 unfinished  1.50 (1.00 to 2.00)") and "not reached (0 of 2 runs)" in base
    assert tasks.startswith("tasks    2, 2 unfinished  4.00 (3.00 to 5.00)")
    assert verdict.startswith("tasks over base: better; probability of improvement 1.00 (1.00 to 1.00); difference")


def test_a_folder_is_all_of_its_runs(logdir, capsys, tmp_path):
    make_run(tmp_path, "Pong-other-s1", [0, 1])
    assert main(["gunreal", "compare", logdir, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["environments"]["ALE/Pong-v5"]["settings"]
    assert {label: len(of["runs"]) for label, of in found.items()} == {"base": 2, "tasks": 2, "other": 1}
    words = ["compare", tmp_path.name, "--logdir", str(tmp_path.parent)]
    assert main(["gunreal", *words, "--json", "--reference", "tasks"]) == 0
    pairs = json.loads(capsys.readouterr().out)["environments"]["ALE/Pong-v5"]["pairs"]
    assert [(pair["setting"], pair["reference"]) for pair in pairs] == [("base", "tasks"), ("other", "tasks")]


def test_only_the_seed_and_the_environment_are_no_part_of_a_setting(tmp_path):
    sweep = ("tmax_5-s1", "tmax_5-s2", "tmax_20-s1000", "Pong-base-s1")
    for name in [*(f"one/{name}" for name in sweep), "two/base-s1"]:
        make_run(tmp_path, name, [0, 1])
    found = gunreal.compare([str(tmp_path / "one"), str(tmp_path / "two")])["environments"]["ALE/Pong-v5"]["settings"]
    counts = {label: len(of["runs"]) for label, of in found.items()}
    assert counts == {"tmax_5": 2, "tmax_20": 1, "one/base": 1, "two/base": 1}


def test_from_python(logdir):
    by_words = gunreal.compare(BOTH, logdir=logdir, steps=100)
    assert by_words == gunreal.compare({"base": ["base-s1", "base-s2"], "tasks": ["tasks-s1", "tasks-s2"]},
                                       logdir=logdir, steps=100)  # fmt: skip
    assert by_words["environments"]["ALE/Pong-v5"]["settings"]["tasks"]["score"][0] == 4
    assert json.loads(json.dumps(by_words)) == by_words


def test_markdown_and_a_picture(logdir, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    import cv2

    out = tmp_path / "compare.png"
    assert main(["gunreal", "compare", *BOTH, "--logdir", logdir, "--markdown", "--plot", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["| setting | seeds | score | mean of the curve |", "|---|---|---|---|"]
    assert lines[-1].startswith("- tasks over base: better")
    assert cv2.imread(str(out)).shape == (750, 1800, 3)
