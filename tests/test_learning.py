"""What must be learned, not only run: Catch, and a maze where the auxiliary tasks must pay. Minutes on two cores."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gunreal

TASKS = "pc,vr,rp"
ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")}  # has recall
SMALL = ("--frame_size", "20", "--frame_stack", "1", "--hidden", "32")
RECALL = ("--env", "recall:Recall", "--env_args", "wait=1,shown=1", *SMALL, "--entropy", "0.01")
CATCH = ("--env", "gunreal/Catch-v0", "--env_args", "rows=4,columns=3", *SMALL)


def train(folder, name, *flags):
    """Trains as a user does; the run."""
    command = [sys.executable, "-m", "gunreal.train", "--logdir", str(folder), "--name", name, "--metrics_seconds", "2"]
    subprocess.run([*command, *flags], check=True, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    return gunreal.load(folder / name)


def evaluated(run):
    """The mean score of 100 episodes of the most probable actions."""
    flags = ["--episodes", "100", "--policy", "argmax", "--json"]
    command = [sys.executable, "-m", "gunreal.evaluate", str(run.path), *flags]
    done = subprocess.run(command, check=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    return json.loads(done.stdout)["mean"]


@pytest.mark.learns
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("steps", "flags"),
    [(30_000, ()), (40_000, ("--objective", "a3c")), (20_000, ("--backend", "jax", "--tasks", TASKS))],
    ids=["base", "a3c", "jax"],
)
def test_catch_is_solved(tmp_path, steps, flags):
    if "jax" in flags:
        pytest.importorskip("jax")
    run = train(tmp_path, "catch", *CATCH, "--entropy", "0.01", "--steps", str(steps), *flags)
    assert evaluated(run) >= 0.95  # of an optimum of 1


@pytest.mark.learns
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("steps", "flags"),
    [
        (20_000, ("--tasks", TASKS, "--network", "lstm", "--env_args", "shown=1", "--entropy", "0.01")),
        (16_000, ("--tasks", "vr,rp", "--objective", "dqn", "--replay_size", "200", "--env_args", "shown=0,told=true")),
    ],
    ids=["lstm", "dqn"],
)
def test_device_runs_solve_recall(tmp_path, steps, flags):
    """On JAX, with tasks, from images and from numbers beside them. Chance has a mean of 0."""
    common = ("--runner", "device", "--env", "recall:functional", "--agents", "16", "--metrics_seconds", "1")
    run = train(tmp_path, "recall", *common, *SMALL, "--steps", str(steps), *flags)
    assert run.metrics[-1]["score_mean"] >= 0.9  # of an optimum of 1


@pytest.mark.learns
@pytest.mark.timeout(600)
def test_two_nodes_solve_recall(tmp_path):
    """On JAX, with memory and with tasks. Chance has a mean of 0."""
    pytest.importorskip("jax")
    if importlib.util.find_spec("ray") is None:  # not imported: that would fix its authentication for this process
        pytest.skip("needs Ray")
    of_nodes = "--runner cluster --nodes 2 --agents 8 --agents_per_process 8 --min_batch 160 --backend jax"
    flags = (*RECALL, *of_nodes.split(), "--network", "lstm", "--tasks", "vr,rp", "--steps", "16000")
    run = train(tmp_path, "cluster", *flags)
    assert run.metrics[-1]["score_mean"] >= 0.9


@pytest.mark.learns
@pytest.mark.timeout(600)
def test_memory_solves_recall_and_nothing_else_does(tmp_path):
    """Chance has a mean of 0."""
    flags = (*RECALL, "--agents", "16", "--steps", "20000")
    assert evaluated(train(tmp_path, "lstm", *flags, "--network", "lstm", "--tasks", TASKS)) >= 0.95
    assert evaluated(train(tmp_path, "forgetful", *flags)) <= 0.4


@pytest.mark.learns
@pytest.mark.timeout(600)
def test_the_auxiliary_tasks_find_a_rare_goal_sooner_than_base_does(tmp_path):
    """The mark is the fastest of base's four seeds with these settings (59,592 to 80,328 steps). Three seeds with tasks
    took 47,192 to 49,208. If one misses the mark by chance, two others must not."""
    base = 59_592
    first, *others = steps_to_the_goal(tmp_path, 1)
    if first is None or first >= base:
        first, *others = steps_to_the_goal(tmp_path, 3)  # the first run is kept
        assert None not in others
        assert max(others) < base


def steps_to_the_goal(folder, seeds: int) -> list[int | None]:
    """The agent steps of each seed until the score is reached, or None."""
    setting = ("--agents=32", "--objective=a3c", "--objective_args=correction=epsilon")
    setting += ("--normalize_observations=off", "--normalize_returns=false")
    setting += ("--frame_size=28", "--frame_stack=1", "--hidden=64")
    command = [sys.executable, "-m", "gunreal", "sweep", "configs/sweeps/tasks.toml", "--settings", "tasks", *setting]
    subprocess.run([*command, "--seeds", str(seeds), "--logdir", str(folder)], check=True, cwd=ROOT)
    (found,) = gunreal.compare([f"tasks={folder}/tasks/tasks-s?"], score=0.8)["environments"].values()
    return [run["steps_to"] for run in found["settings"]["tasks"]["runs"]]


@pytest.mark.timeout(300)
def test_an_installed_plugin_trains_by_its_name(tmp_path):
    flags = ["--tasks", "pc,inverse", "--task", "inverse.weight=0.2", "--agents", "4", "--min_batch", "40"]
    run = train(tmp_path, "plugin", "--env", "gunreal/Catch-v0", "--steps", "3000", *flags)
    losses = [line["loss_inverse"] for line in run.metrics if line["loss_inverse"] is not None]
    assert run.metrics[-1]["stopped_by"] == "steps"
    assert 0 < losses[-1] < 1.2  # it started at ln 3 = 1.10
