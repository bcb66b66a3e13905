"""What must be learned, not only run: Catch, and a maze where the auxiliary tasks must pay. Minutes on two cores."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recall import Recall
from trained import short_run

import gunreal

pytestmark = pytest.mark.timeout(1800)  # up to three trainings

TASKS = "pc,vr,rp"
ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")}  # has recall
SMALL = ("--frame_size", "20", "--frame_stack", "1", "--hidden", "32")
RECALL = ("--env", "recall:Recall", "--env_args", "wait=1,shown=1", *SMALL, "--entropy", "0.01", "--t_max", "5")
CATCH = ("--env", "gunreal/Catch-v0", "--env_args", "rows=4,columns=3", *SMALL)


PROGRAM = """
import sys, gunreal
from gunreal.config.flags import from_flags

def solved(line):
    return line["episodes"] >= 300 and line["score_mean"] >= 0.95

gunreal.train(from_flags(sys.argv)[0], show=False, on_metrics=solved)
"""


def usually(reaches) -> bool:
    """A curve depends on the seed, and in parallel runs on the load of the machine. If seed 1 misses the mark by
    chance, seeds 2 and 3 must not."""
    return reaches(1) or (reaches(2) and reaches(3))


def solved(folder, *flags) -> bool:
    """The mean score of the last 100 episodes of a run, which ends where it would pass, is near the optimum of 1."""

    def reaches(seed):
        own = ("--logdir", folder, "--name", f"s{seed}", "--seed", str(seed), "--metrics_seconds", "0.5")
        subprocess.run([sys.executable, "-c", PROGRAM, *own, *flags], check=True, cwd=ROOT, env=ENVIRONMENT)
        score = gunreal.load(folder / f"s{seed}").metrics[-1]["score_mean"]
        print(f"seed {seed}: a score of {score}")
        return score >= 0.9

    return usually(reaches)


@pytest.mark.learns
@pytest.mark.parametrize(
    "flags", [(), ("--objective", "a3c"), ("--backend", "jax", "--tasks", TASKS)], ids=["base", "a3c", "jax"]
)
def test_catch_is_solved(tmp_path, flags):
    if "jax" in flags:
        pytest.importorskip("jax")
    assert solved(tmp_path, *CATCH, "--entropy", "0.01", "--steps", "60000", *flags)


@pytest.mark.learns
@pytest.mark.parametrize(
    ("steps", "flags"),
    [
        (20_000, ("--tasks", TASKS, "--network", "lstm", "--env_args", "shown=1", "--entropy", "0.01", "--t_max", "5")),
        (16_000, ("--tasks", "vr,rp", "--objective", "dqn", "--replay_size", "200", "--env_args", "shown=0,told=true")),
    ],
    ids=["lstm", "dqn"],
)
def test_device_runs_solve_recall(tmp_path, steps, flags):
    """On JAX, with tasks, from images and from numbers beside them. Chance has a mean of 0."""
    pytest.importorskip("jax")
    common = ("--runner", "device", "--env", "recall:functional", "--agents", "16")
    assert solved(tmp_path, *common, *SMALL, "--steps", str(steps), *flags)


@pytest.mark.learns
def test_two_nodes_solve_recall(tmp_path):
    """On JAX, with memory and with tasks. Without memory, chance is the best, a mean of 0: the last frame is the same
    for both sides."""
    pytest.importorskip("jax")
    env = Recall(wait=1, shown=1)
    lights, lasts = zip(*((env.reset(seed=seed)[0], env.step(0)[0]) for seed in range(8)), strict=True)
    assert np.ptp(lights, axis=0).all() and not np.ptp(lasts, axis=0).any()
    if importlib.util.find_spec("ray") is None:  # not imported: that would fix its authentication for this process
        pytest.skip("needs Ray")
    of_nodes = "--runner cluster --nodes 2 --agents 8 --agents_per_process 8 --min_batch 160 --backend jax"
    flags = (*RECALL, *of_nodes.split(), "--network", "lstm", "--tasks", "vr,rp", "--steps", "16000")
    assert solved(tmp_path, *flags)


@pytest.mark.learns
def test_the_auxiliary_tasks_find_a_rare_goal_sooner_than_base_does(tmp_path):
    """In serial runs. The mark is the fastest of base's five seeds with these settings (73,664 to 90,944 steps); five
    seeds with tasks took 45,504 to 67,264."""
    setting = ("--agents=32", "--objective=a3c", "--objective_args=correction=epsilon")
    setting += ("--normalize_observations=off", "--normalize_returns=false")
    setting += ("--frame_size=28", "--frame_stack=1", "--hidden=64", "--runner=serial", "--metrics_seconds=0.5")
    command = [sys.executable, "-m", "gunreal", "sweep", "configs/sweeps/tasks.toml", "--settings", "tasks", *setting]
    command += ["--episodes", "1", "--logdir", str(tmp_path)]

    def reaches(seed):
        subprocess.run([*command, "--seeds", str(seed)], check=True, cwd=ROOT)  # earlier seeds are kept
        (found,) = gunreal.compare([f"tasks={tmp_path}/tasks/tasks-s{seed}"], score=0.8)["environments"].values()
        (run,) = found["settings"]["tasks"]["runs"]
        return run["steps_to"] is not None and run["steps_to"] < 73_664

    assert usually(reaches)


def test_an_installed_plugin_trains_by_its_name(tmp_path):
    run = short_run(tmp_path, "plugin", steps=400, tasks=("pc", "inverse"), task={"inverse": {"weight": 0.2}})
    losses = [line["loss_inverse"] for line in run.metrics if line["loss_inverse"] is not None]
    assert run.tasks[1].weight == 0.2 and 0 < losses[-1] < 1.2  # it started at ln 3 = 1.10
