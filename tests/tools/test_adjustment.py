"""Experiments that time ends, and how soon a scheduler has found a good training rate."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys

import pytest
from experiments import adjustment, dispatcher, jobs, papers, report, table
from planned import CATCH, FINISHED, TOOLS, curve, make_run, plan, small, trainings
from training import Training

from gunreal.records import metrics

FIG2 = papers.EXPERIMENTS["ga3c-fig2"]
FIG5 = papers.EXPERIMENTS["ga3c-fig5"]


def chosen(experiment, *settings: str, **changes):
    kept = {name: experiment.settings[name] for name in settings}
    return dataclasses.replace(experiment, settings=kept, **changes)


def lines(*rates: float, every: float = 10.0, **last) -> list[dict]:
    """Metrics of a run with these training rates in turn."""
    found, trained = [], 0.0
    for number, rate in enumerate(rates, 1):
        trained += rate * every
        line = {"seconds": every * number, "step": int(trained), "trained": trained, "tps": rate}
        line |= {"agents": number, "predictors": 1, "trainers": 2, "memory_bytes": 1e8 * number, "memory_limit": 8e9}
        found.append(line)
    found[-1] |= last
    return found


def test_rates_are_of_a_while():
    assert adjustment.rate(lines(10, 10, 50, 70)) == 60
    steps = lines(100, 100, 1000, 100, 400, 400, 400)
    assert adjustment.first_reach(steps, 400) == 30  # 1200 steps a second for the last 30 s, by one lucky line
    assert adjustment.first_reach(steps, 401) == 50 and adjustment.first_reach(steps, 501) is None
    assert adjustment.first_reach(lines(900), 400) is None  # not yet 30 s


def test_numbers_and_table(tmp_path):
    experiment = chosen(FIG2, "queue", "annealing", "1-1-1", "4-1-1", minutes=1.0)
    wanted = plan(tmp_path, experiment, 2)
    rates = {
        "queue": (200, 500, 700, 930, 930, 930),
        "annealing": (200,) * 6,
        "1-1-1": (100,) * 6,
        "4-1-1": (1000,) * 6,
    }
    for training in wanted[:-1]:
        make_run(training, *lines(*rates[training.setting], stopped_by="SIGINT"))
    results = adjustment.measure(experiment, tmp_path)
    rows = results["settings"]
    assert (results["best"], results["target"], results["budget"]) == ("4-1-1", 900, "1 min, or 1,000 agent steps")
    assert (rows["queue"]["rate"], rows["queue"]["share"]) == (930, 0.93)
    assert rows["queue"]["seconds_to_target"] == 60 and rows["annealing"]["seconds_to_target"] is None
    assert rows["4-1-1"]["finished"] == [True] and rows["4-1-1"]["seconds_to_target"] == 30
    assert rows["queue"]["counts"] == {"agents": 6, "predictors": 1, "trainers": 2}
    cells = [line[2:-2].split(" | ") for line in adjustment.table(results).splitlines() if line.startswith("| ")]
    assert "minutes to 900" in cells[0]
    assert cells[1] == ["queue scheduler, from 1/1/1", "2", "6/1/2", "930", "0.93", "1.0", "600", "8,000"]
    assert cells[2][5] == "not reached" and cells[4][0] == "fixed 4/1/1 (best fixed setting)"
    assert FIG2.shows in adjustment.table(results)


def test_numbers_without_a_fixed_setting(tmp_path):
    experiment = chosen(FIG2, "queue")
    make_run(plan(tmp_path, experiment)[0], *lines(100, 200))
    results = adjustment.measure(experiment, tmp_path)
    assert results["target"] is None and results["settings"]["queue"]["share"] is None
    assert "| queue scheduler, from 1/1/1 | 1, 1 unfinished | 2/1/2 | 200 | - | not reached |" in adjustment.table(
        results
    )


def test_flags_override_the_papers_constants(tmp_path):
    (training,) = plan(tmp_path, chosen(FIG5, "16-1-1"), extra=["--t_max", "20", "--tasks", "pc,vr,rp"])
    config = training.config
    assert (config.t_max, config.tasks, config.optimizer, config.min_batch) == (20, ("pc", "vr", "rp"), "rmsprop", 40)
    assert (config.agents, config.agents_per_process, training.minutes, config.steps) == (16, 1, 180, 1000)
    (training,) = plan(tmp_path, chosen(FIG5, "queue"), steps=0)
    assert (training.config.steps, training.config.tasks) == (table.FOREVER, ())
    assert trainings.budget(training.config.steps, training.minutes) == "180 min"
    assert trainings.budget(1000, math.inf) == "1,000 agent steps"


def test_a_run_ends_at_its_time_limit(tmp_path):
    experiment = dataclasses.replace(small("base", "pc", "vr", "rp"), minutes=0.1)
    done, short, killed, stepped = plan(tmp_path, experiment)
    make_run(done, {"seconds": 3.0}, {"seconds": 6.5, "stopped_by": "SIGINT"})
    make_run(short, {"seconds": 5.9, "stopped_by": "SIGINT"})
    make_run(killed, {"seconds": 7.0})
    make_run(stepped, FINISHED)
    assert [training.finished() for training in (done, short, killed, stepped)] == [True, False, False, True]
    assert not jobs.is_finished([{"seconds": 7.0, "stopped_by": "error"}], 0.1)
    assert [training.seconds() for training in (done, killed)] == [6.5, 7.0]


def test_the_table_shows_the_budget_of_runs(tmp_path):
    experiment = dataclasses.replace(small("base"), minutes=0.1)
    make_run(plan(tmp_path, experiment)[0], *curve(1, 2, 3), {**FINISHED, "seconds": 6.0, "stopped_by": "SIGINT"})
    results = report.measure(experiment, tmp_path)
    assert results["settings"]["base"]["finished"] == [True]
    assert "0.1 min, or 1,000 agent steps per run." in report.table(results).splitlines()[0]


WAITS = """
import json, pathlib, signal, sys, time
path = pathlib.Path(sys.argv[1])
def leave(stopped_by):
    with open(path / "metrics.jsonl", "a") as file:
        line = {"step": 100, "seconds": 7.0, "score_mean": None, "stopped_by": stopped_by}
        print(json.dumps(line), file=file, flush=True)
def stop(*_):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in a training: a second one cuts the save
    if sys.argv[2] == "interrupt":
        import os
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(1)
    leave("SIGINT")
    sys.exit()
signal.signal(signal.SIGINT, stop)
path.mkdir(parents=True)
leave(None)
time.sleep(60)
"""


@pytest.mark.parametrize("what", ["wait", "interrupt"])
def test_the_dispatcher_ends_runs_at_their_time_limit(tmp_path, monkeypatch, what):
    """Once: a Ctrl-C while a training saves itself is not handed on."""
    command = lambda training: [sys.executable, "-c", WAITS, str(training.path), what]  # noqa: E731
    monkeypatch.setattr(trainings.Training, "command", command)
    wanted = plan(tmp_path, dataclasses.replace(small("base", "pc"), minutes=0.002))
    said = []
    with open(os.devnull) as lock:
        working = dispatcher.Dispatcher(wanted, 1, lock, said.append, every=0.1)
        working.train(lambda: None)
    assert wanted[0].finished() and not working.failed
    assert (working.stopping, wanted[1].finished()) == ((False, True) if what == "wait" else (True, False))
    assert any("100 agent steps, 0.1 of 0.002 min, or 1,000 agent steps" in line for line in said)


@pytest.mark.timeout(300)
def test_a_scheduler_beside_a_fixed_setting(tmp_path):
    """The real thing: each run for some seconds, the second time nothing is left to do."""
    pytest.importorskip("matplotlib")
    words = ["ga3c-fig2", "--env", CATCH, "--settings", "queue,4-1-1", "--seeds", 1, "--minutes", 0.1]
    flags = ["--hidden", 32, "--metrics_seconds", 0.5, "--scheduler_seconds", 1, "--memory_limit", "6GB"]
    runs = tmp_path / "runs" / "Catch-v0"

    def start():
        return Training(tmp_path, *words, "--", *flags, program=(str(TOOLS / "reproduce.py"),))

    with start() as process:
        assert process.end(250) == 0, process.stderr
    found = {name: metrics.read(runs / f"ga3c-fig2-{name}-s1" / metrics.FILE) for name in ("queue", "4-1-1")}
    assert all(run[-1]["stopped_by"] == "SIGINT" and run[-1]["seconds"] >= 6 for run in found.values())
    assert found["queue"][0]["agents"] == 1 and {line["agents"] for line in found["4-1-1"]} == {4}
    results = json.loads((runs / "ga3c-fig2.json").read_text())
    assert results["best"] == "4-1-1" and results["budget"] == "0.1 min"
    assert all(row["finished"] == [True] and row["memory_limit"] == 6e9 for row in results["settings"].values())
    assert (runs / "ga3c-fig2.png").stat().st_size > 10_000
    with start() as process:
        assert process.end() == 0, process.stderr
    assert metrics.read(runs / "ga3c-fig2-queue-s1" / metrics.FILE) == found["queue"]
