from __future__ import annotations

import dataclasses

from experiments import jobs, papers, report
from planned import CATCH, FINISHED, curve, make_run, plan, small


def test_first_reach_waits_for_a_hundred_episodes():
    lines = curve(5, 1, 3, 4)
    assert jobs.first_reach(lines, 3, "step") == 300 and jobs.first_reach(lines, 3, "seconds") == 6
    assert jobs.first_reach(lines, 4.5, "step") is None


def test_median_includes_runs_that_did_not_reach_the_score():
    assert report.median([1, None, 2]) == 2 and report.median([3, 1, None, 2]) == 2.5
    assert report.median([None, None, 1]) is None and report.median([1, None]) is None and report.median([]) is None


def test_numbers(tmp_path):
    wanted = plan(tmp_path, small("base", "pc", "vr"), 3)
    for training, last in zip(wanted[::3], (2, 4, 3), strict=True):
        make_run(training, *curve(0, 0, 1, last), {**FINISHED, "step": 500, "seconds": 10, "score_mean": last})
    for training, scores in zip(wanted[1::3], ((0, 4, 5), (0, 1, 3.5, 6), (0, 0, 0, 0)), strict=True):
        make_run(training, *curve(*scores))
    results = report.measure(small("base", "pc", "vr"), tmp_path)
    base, pc = results["settings"]["base"], results["settings"]["pc"]
    assert results["target"] == 3 and results["settings"].keys() == {"base", "pc"}  # no run of vr has a score
    assert base["scores"] == [2, 4, 3] and base["score"] == 3 and base["interval"] == [2, 4]
    assert base["steps_to_target"] == 400 and base["seconds_to_target"] == 8 and base["finished"] == [True] * 3
    assert pc["scores"] == [5, 6, 0] and pc["finished"] == [False] * 3 and pc["steps"] == [300, 400, 400]
    assert pc["steps_to_target"] == 300 and pc["ratio"] == 0.75 and pc["steps_per_second"] == 50
    assert pc["runs"] == ["ablation-pc-s1", "ablation-pc-s2", "ablation-pc-s3"]
    assert "| 3 | 3.00 (2.00 to 4.00) |" in report.table(results)


def test_table(tmp_path):
    experiment = papers.EXPERIMENTS["fig14"]
    for training in plan(tmp_path, experiment):
        make_run(training, *curve(0, 20, 10), FINISHED)
    text = report.table(report.measure(experiment, tmp_path))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    numbers = ["1", "2.00", "200", "1.00", "0.1", "1,001", "0.0", "25", "-"]
    assert rows[1] == ["base (GA3C) (reference)", *numbers]
    assert rows[2][0] == "pc+vr+rp (GUNREAL)" and rows[2][-2:] == ["27", "0.27"]
    assert text.splitlines()[0] == f"**{experiment.title}** on `{CATCH}`, 1,000 agent steps per run."
    assert experiment.shows in text


def test_steps_to_a_goal_do_not_depend_on_the_reference(tmp_path):
    experiment = dataclasses.replace(small("base", "pc"), goal=3.0)
    base, pc = plan(tmp_path, experiment)
    assert base.score == 3.0
    make_run(base, *curve(0, 1, 3, 9), {"step": 500, "seconds": 10, "updates": 30, "stopped_by": "SIGINT"})
    make_run(pc, *curve(0, 1, 2), {"step": 400, "seconds": 8, "stopped_by": "SIGINT"})
    results = report.measure(experiment, tmp_path)
    assert results["target"] == 3.0
    found = results["settings"]["base"]
    assert (found["steps_to_target"], found["finished"], found["updates_per_second"]) == (300, [True], 3.0)
    assert results["settings"]["pc"]["steps_to_target"] is None and results["settings"]["pc"]["finished"] == [False]


def test_numbers_without_the_reference(tmp_path):
    make_run(plan(tmp_path, small("pc"))[0], *curve(1, 2))
    results = report.measure(small("pc"), tmp_path)
    assert results["target"] is None and results["settings"]["pc"]["ratio"] is None
    assert "| pc (pixel control) | 1, 1 unfinished | 2.00 | not reached |" in report.table(results)
