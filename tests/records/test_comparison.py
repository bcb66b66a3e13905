"""Comparisons of runs that have nothing but a configuration and metrics, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gunreal.config.folders import prepare_run_dir
from gunreal.config.schema import Config, ConfigError
from gunreal.records import comparison, human

PONG, BREAKOUT, CATCH = "ALE/Pong-v5", "ALE/Breakout-v5", "gunreal/Catch-v0"


@pytest.fixture
def run(tmp_path):
    """Makes a run with a line of metrics every 100 steps and 60 seconds."""

    def make(name: str, *scores, env=CATCH, seed=1, ended="steps", evaluated=(), resumed=False) -> Path:
        path = prepare_run_dir(Config(logdir=str(tmp_path), name=f"{name}-{env[-8]}-s{seed}", env=env, seed=seed))
        lines = [
            {"step": 100 * i, "seconds": 60.0 * i, "score_mean": score, "episodes": 100 * i}
            for i, score in enumerate(scores)
        ]
        lines[0] |= {"resumed": True} if resumed else {}
        lines[-1]["stopped_by"] = ended
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if evaluated:
            about = {"step": 100 * len(scores), "scores": list(evaluated)}
            (path / comparison.EVALUATION).write_text(json.dumps(about))
        return path

    return make


def seeds(run, name, *finals, env=CATCH):
    return [run(name, 0, final, env=env, seed=seed) for seed, final in enumerate(finals, 1)]


def test_scores_areas_and_steps_to_a_score(run):
    groups = {"a": [run("a", 0, 1, 2), run("a", 2, 2, 4, seed=2)], "b": [run("b", None, 0, 0, 8)]}
    found = comparison.compare(groups, score=2)
    here = found["environments"][CATCH]
    assert here["final"] == "training" and found["all"] is None
    a, b = (here["settings"][name] for name in "ab")
    assert [row["score"] for row in a["runs"]] == [2, 4] and a["score"][0] == 3 and a["score"][1:] == [2, 4]
    assert [row["area"] for row in a["runs"]] == pytest.approx([1, 2.5], abs=0.01)  # up to 200 steps, as all have taken
    assert b["runs"][0]["area"] == 0 and b["score"] == [8, None, None]
    assert (a["runs"][0]["steps_to"], a["runs"][0]["minutes_to"]) == (200, 2)
    assert a["runs"][1]["steps_to"] == 100  # step 0 has too few episodes
    assert (a["steps_to"], b["steps_to"], b["minutes_to"]) == (150, 300, 3)
    never = comparison.compare(groups, score=9)["environments"][CATCH]["settings"]["a"]
    assert never["steps_to"] is None and never["minutes_to"] is None


def test_runs_can_be_compared_after_equal_steps(run):
    groups = {"a": [run("a", 0, 1, 2, evaluated=(9,))], "b": [run("b", 0, 3, 3, 8, evaluated=(9,))]}
    found = comparison.compare(groups, steps=200)["environments"][CATCH]
    assert found["final"] == "training"
    assert [found["settings"][name]["score"][0] for name in "ab"] == [2, 3]
    with pytest.raises(ConfigError, match="has taken 200 steps; use --steps 200 or less"):
        comparison.compare(groups, steps=300)


def test_evaluations_take_the_place_of_training_scores_if_all_have_one(run):
    a, b = run("a", 0, 1, evaluated=(3, 4)), run("b", 0, 2)
    assert comparison.compare({"a": [a]})["environments"][CATCH]["settings"]["a"]["score"][0] == 3.5
    both = comparison.compare({"a": [a], "b": [b]})["environments"][CATCH]
    assert both["final"] == "training" and both["settings"]["a"]["score"][0] == 1
    (b / comparison.EVALUATION).write_text("half of a fi")
    assert comparison.compare({"b": [b]})["environments"][CATCH]["final"] == "training"
    (a / "checkpoints").mkdir()
    (a / "checkpoints" / "step_000000000900.npz").touch()  # the run went on after its evaluation
    assert comparison.compare({"a": [a]})["environments"][CATCH]["final"] == "training"


def test_resumed_and_unfinished_runs_are_marked(run):
    found = comparison.compare({"a": [run("a", 0, 1, resumed=True), run("a", 1, ended="SIGINT", seed=2)]})
    rows = found["environments"][CATCH]["settings"]["a"]["runs"]
    assert [(row["finished"], row["resumed"]) for row in rows] == [(True, True), (False, False)]
    groups = {"a": [run("b", 0, 2, ended="SIGINT"), run("b", 0, 1, ended="SIGINT", seed=2)]}
    rows = comparison.compare(groups, score=2)["environments"][CATCH]["settings"]["a"]["runs"]
    assert [row["finished"] for row in rows] == [True, False]  # the first one has reached the score


@pytest.mark.parametrize(
    ("base", "other", "verdict"),
    [
        ((1, 2), (3, 4), "better"),  # disjoint intervals
        ((3, 4), (1, 2), "worse"),
        ((1, 3), (2, 4), "undecided"),
        ((1,), (9,), "undecided"),  # one seed says nothing
        ((1, 2, 3, 4, 5), (4, 5, 6, 7, 8), "better"),
        ((1, 2, 3, 4), (3, 4, 5, 6, 7), "undecided"),  # four seeds whose intervals overlap
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 6), "undecided"),
    ],
)
def test_verdicts(run, base, other, verdict):
    found = comparison.compare({"base": seeds(run, "base", *base), "other": seeds(run, "other", *other)})
    (pair,) = found["environments"][CATCH]["pairs"]
    assert (pair["setting"], pair["reference"], pair["verdict"]) == ("other", "base", verdict)
    assert pair["seeds"] == min(len(base), len(other)) == pair["pairs"]


def test_pairs_are_of_equal_seeds(run):
    base = [run("base", 0, score, seed=seed) for seed, score in ((1, 5), (2, 1), (7, 99))]
    other = [run("other", 0, score, seed=seed) for seed, score in ((2, 4), (1, 6))]
    (pair,) = comparison.compare({"base": base, "other": other})["environments"][CATCH]["pairs"]
    assert (pair["pairs"], pair["difference"], pair["p"]) == (2, 2.0, 0.5)


def test_several_environments_are_human_normalized(run):
    base = [*seeds(run, "base", -20.71, 14.6, env=PONG), *seeds(run, "base", 1.72, 30.5, env=BREAKOUT)]
    ours = [*seeds(run, "ours", 14.6, 14.6, env=PONG), *seeds(run, "ours", 30.5, 59.28, env=BREAKOUT)]
    extra = seeds(run, "alone", 1, env=PONG)
    found = comparison.compare({"base": base, "ours": ours, "alone": extra})["all"]
    assert found["settings"].keys() == {"base", "ours"}  # the third lacks a game
    assert found["settings"]["ours"][0] == pytest.approx(1) and found["settings"]["base"][0] == pytest.approx(0.5)
    (pair,) = found["pairs"]
    assert pair["improvement"][0] == pytest.approx(((1 + 0.5) / 2 + (1 + 0.5 + 1 + 1) / 4) / 2)
    assert pair["pairs"] == 4 and pair["difference"] == pytest.approx((1 + 0 + 1 + 1) / 4)
    steps, _ = comparison.panels({"base": base, "ours": ours})
    assert steps.y == "human-normalized score" and [curve.runs for curve in steps.curves] == [2, 2]
    assert [curve.y[-1] for curve in steps.curves] == pytest.approx([0.5, 1])


def test_environments_without_reference_scores_have_no_common_scale(run):
    groups = {name: [run(name, 0, 1), run(name, 0, 1, env=PONG)] for name in "ab"}
    found = comparison.compare(groups)["all"]
    assert found["settings"] == {"a": None, "b": None}
    (pair,) = found["pairs"]
    assert "difference" not in pair and pair["improvement"][0] == 0.5 and pair["verdict"] == "undecided"
    with pytest.raises(ConfigError, match="Catch-v0 has no reference scores"):
        comparison.panels(groups)


def test_drawn_curves_are_interquartile_means_up_to_the_shortest_run(run):
    groups = {"a": [run("a", 0, 2, 4), run("a", 2, 4, seed=2)], "b": [run("b", 1, 1)]}
    steps, seconds = comparison.panels(groups)
    a, b = steps.curves
    assert (steps.x, steps.y, seconds.x) == ("step", "score_mean", "seconds")
    assert a.x[-1] == 100 and (a.y[0], a.y[-1], a.runs) == (1, 3, 2) and a.low[0] == 0 and a.high[0] == 2
    assert b.low is None and np.all(b.y == 1) and seconds.curves[0].x[-1] == 60


def test_runs_that_cannot_be_compared(run):
    with pytest.raises(ConfigError, match="has no score yet"):
        comparison.compare({"a": [run("a", None, None)]})
    groups = {"b": [run("b", 1)], "c": [run("c", 1, env=PONG)]}
    with pytest.raises(ConfigError, match=f"no environment in common .{CATCH}, {PONG}.; choose"):
        comparison.compare(groups)
    assert comparison.compare(groups | {"d": [run("d", 1)]})["all"] is None


def test_reference_scores_are_of_atari_games():
    assert human.reference("ALE/Pong-v5").normalized(14.6) == 1
    assert human.reference("gunreal/Pong-v5") is None and human.reference("ALE/Tetris-v5") is None
