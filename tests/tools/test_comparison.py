"""The numbers of a comparison on Atari games, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from peer_standins import lines
from scores import comparison


def test_score_at_is_linear_between_lines():
    run = lines(None, 2, 6)
    assert comparison.score_at(run, "step", 250) == 4 and comparison.score_at(run, "seconds", 135) == 3
    assert comparison.score_at(run, "step", 50) == 2 and comparison.score_at(run, "step", 900) == 6


def test_shorter_runs_do_not_count():
    runs = {
        "a": {"Pong": [lines(1, 2, 3), lines(1, 5, ended=False), lines(0, 0, 0, 9)]},
        "b": {"Pong": [lines(7, ended=False)]},
    }
    at_steps = comparison.points(runs, "step", 300)
    assert at_steps.keys() == {"a"} and at_steps["a"]["Pong"].tolist() == [3, 0]
    assert comparison.points(runs, "seconds", 60)["b"]["Pong"].tolist() == [7]
    assert comparison.points(runs, "step", 306)["a"]["Pong"].tolist() == [3, pytest.approx(0.54)]  # up to 2 % shorter
    assert comparison.points(runs, "step", 400)["a"]["Pong"].tolist() == [9]  # also if a run has ended before
    assert comparison.points(runs, "seconds", 600) == {}
    assert comparison.common_seconds(runs) == 180  # of the finished ones
    assert comparison.common_seconds({"b": runs["b"]}) is None


def test_runs_without_a_score_by_then_do_not_count():
    """Otherwise a run would count with a score that it got later."""
    runs = {"a": {"Pong": [lines(None, 2, 3), lines(1, 2, 3)]}, "b": {"Pong": [lines(None, None, 7)]}}
    assert comparison.points(runs, "step", 150)["a"]["Pong"].tolist() == [1.5]
    assert comparison.points(runs, "seconds", 90).keys() == {"a"}
    assert comparison.points(runs, "step", 200)["a"]["Pong"].tolist() == [2, 2]
    assert comparison.points(runs, "step", 300)["b"]["Pong"].tolist() == [7]


def test_compare():
    scores = {
        "gunreal": {"Pong": np.array([14.6, 14.6]), "Breakout": np.array([30.5, 59.28])},
        "sb3-ppo": {"Pong": np.array([-20.71, 14.6]), "Breakout": np.array([1.72, 30.5]), "Qbert": np.array([1.0])},
    }
    found = comparison.compare(scores, ["gunreal"])
    assert found["games"] == ["Pong", "Breakout"]
    ours, other = found["systems"]["gunreal"], found["systems"]["sb3-ppo"]
    assert ours["iqm"][0] == pytest.approx(1) and other["iqm"][0] == pytest.approx(0.5)  # of 1 1 1 2, and of 0 0 1 1
    assert ours["iqm"][1] <= ours["iqm"][0] <= ours["iqm"][2] and ours["atari_5"] is None
    assert other["scores"]["Qbert"] == [1.0]
    assert found["improvement"].keys() == {"gunreal"} and found["improvement"]["gunreal"].keys() == {"sb3-ppo"}
    assert found["improvement"]["gunreal"]["sb3-ppo"][0] == pytest.approx(((1 + 0.5) / 2 + (1 + 0.5 + 1 + 1) / 4) / 2)


def test_without_two_runs_of_every_game_there_is_no_interval():
    two, one = np.array([-20.71, 14.6]), np.array([30.5])
    found = comparison.compare({"gunreal": {"Pong": two, "Breakout": one}, "sf": {"Pong": two}}, ["gunreal"])
    assert [len(row["iqm"]) for row in found["systems"].values()] == [3, 3]  # only Pong counts
    assert len(found["improvement"]["gunreal"]["sf"]) == 3
    found = comparison.compare({"gunreal": {"Pong": two, "Breakout": one}}, ["gunreal"])
    assert found["systems"]["gunreal"]["iqm"] == [pytest.approx(2 / 3)]
    found = comparison.compare({"gunreal": {"Pong": two}, "sf": {"Pong": np.array([0.0])}}, ["gunreal"])
    assert len(found["systems"]["gunreal"]["iqm"]) == 3 and len(found["systems"]["sf"]["iqm"]) == 1
    assert found["improvement"] == {"gunreal": {"sf": [0.5]}}


def test_atari_5_is_predicted_where_all_five_games_are():
    human = {"BattleZone": 37187.5, "DoubleDunk": -16.4, "NameThisGame": 8049.0, "Phoenix": 7242.6, "Qbert": 13455.0}
    scores = {"gunreal": {game: np.array([score, score]) for game, score in human.items()}}
    (value, low, high) = comparison.compare(scores, ["gunreal"])["systems"]["gunreal"]["atari_5"]
    assert value == low == high == pytest.approx((101**0.9653 - 1) / 100)


def test_summarize_compares_at_equal_steps_and_at_equal_minutes():
    runs = {"gunreal": {"Pong": [lines(-10, 0, 10, seconds=30)]}, "sf": {"Pong": [lines(-20, -10, 20)]}}
    found = comparison.summarize(runs, ["gunreal"], 300, None)
    assert found["steps"]["at"] == 300 and found["minutes"]["at"] == 1.5
    assert found["steps"]["systems"]["sf"]["scores"] == {"Pong": [20.0]}
    assert found["minutes"]["systems"]["sf"]["scores"] == {"Pong": [-15.0]}  # after 90 s of 180
    assert comparison.summarize(runs, ["gunreal"], 300, 1.0)["minutes"]["systems"]["gunreal"]["scores"] == {
        "Pong": [0.0]
    }
    unfinished = {"gunreal": {"Pong": [lines(1, ended=False)]}}
    assert comparison.summarize(unfinished, ["gunreal"], 300, None)["minutes"] is None
