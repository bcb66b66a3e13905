"""A task that fails in the middle of a run ends it with one line, as it would fail again in a new process."""

from __future__ import annotations

import sys

import pytest
from training import Training, is_gone, wait_until

from gunreal.records import metrics
from gunreal.train import main

TASK = """
from failing_tasks import in_agent_process
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from gunreal.tasks import Sequences
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay


class Loud(CartPoleEnv):
    def step(self, action):
        print("step")
        return super().step(action)

    def close(self):
        print("closed")
        if in_agent_process():
            raise OSError("it does not close")


class Targets(ValueReplay):
    name = "late"

    def targets(self, replay, sequences, bootstraps):
        if 60 < replay.end < 100:  # the dry run's has 100 steps
            raise IndexError("deliberate\\nmistake")
        return super().targets(replay, sequences, bootstraps)


class Sample(RewardPrediction):
    name = "early"

    def sample(self, replay, draws):
        first, length = super().sample(replay, draws)
        return Sequences(0 * first + 59, 0 * length + 3) if replay.end == 60 else Sequences(first, length)


class Varying(RewardPrediction):
    name = "varying"

    def targets(self, replay, sequences, bootstraps):
        found = super().targets(replay, sequences, bootstraps)
        return {"class": found["class"][:, None]} if replay.end == 60 else found
"""
SMALL = ("--agents", 4, "--hidden", 16, "--t_max", 5, "--metrics_seconds", 0.3)
LINES = {
    "Targets": "task 'late': targets() failed: IndexError: deliberate mistake ({folder}/failing.py:26)",
    "Sample": "task 'early': sample() returns steps 59 to 61, but the replay holds steps 0 to 59",
    "Varying": "task 'varying': shapes of target 'class' vary ([1] and []); use fixed shapes",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    return tmp_path


def test_a_failing_task_ends_a_parallel_run(folder):
    """Its line is found after what the environments print. The weights are saved, and no process stays."""
    with Training(folder, "--env", "failing:Loud", "--tasks", "failing:Targets", "--min_batch", 20, *SMALL) as run:
        seen: set[int] = set()
        wait_until(lambda: seen.update(run.agents()) or run.popen.poll() is not None)
        assert run.end() == 1
        assert run.stderr.endswith(f"\ngunreal: {LINES['Targets'].format(folder=folder)}\n")
        assert seen and all(map(is_gone, seen))
        last = run.lines()[-1]
        assert last["stopped_by"] == "error" and last["restarts"] == 0 and last["step"] >= 120
        assert run.checkpoints()[-1].stem.endswith(str(last["step"]))


@pytest.mark.parametrize("task", LINES)
def test_a_failing_task_ends_a_serial_run(folder, capfd, task):
    """Before the first update, whose compilation takes long."""
    flags = ("--env", "CartPole-v1", "--tasks", f"failing:{task}", "--runner", "serial", "--logdir", folder)
    flags = (*flags, "--name", "run", "--min_batch", 1000)
    assert main(["train", *map(str, (*flags, *SMALL))]) == 1
    lines = capfd.readouterr().err.splitlines()  # with those of XLA, if this process loads it
    assert [line for line in lines if line[:2] not in ("I0", "W0")] == [f"gunreal: {LINES[task].format(folder=folder)}"]
    assert metrics.read(folder / "run" / metrics.FILE)[-1]["stopped_by"] == "error"
