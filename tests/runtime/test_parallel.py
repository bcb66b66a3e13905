from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
from pathlib import Path

import pytest
from scripted_env import FAILING
from training import open_files

import gunreal
from gunreal.config.schema import Config, ConfigError
from gunreal.records import checkpoint
from gunreal.runtime import parallel, ram, scheduler
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.scheduler import Counts
from gunreal.runtime.system import System, on_this_machine
from gunreal.train import prepare

MIB = 2**20
SMALL = {"agents": 2, "agents_per_process": 2, "hidden": 8, "t_max": 5, "min_batch": 10, "objective": "a3c"}


def make_system(**options):
    spec, tasks, _, config = prepare(Config(env="CartPole-v1", **(SMALL | options)))
    return System(on_this_machine(config), spec, tasks, None)


@pytest.fixture
def make():
    """Makes runs of CartPole, which are closed in the end. Nothing starts."""
    with contextlib.ExitStack() as last:

        def make(**options):
            system = make_system(**options)
            last.callback(system.close)
            return ParallelRunner(system)

        yield make


@pytest.fixture(scope="module")
def of_six():
    """The parts of a run of three processes."""
    with contextlib.closing(make_system(agents=6, predictors=1, trainers=1, scheduler="queue")) as system:
        yield system


def test_failures_count_only_if_they_come_soon_after_the_start(tmp_path, monkeypatch):
    """A process that has worked for long is restarted, however often it fails."""
    monkeypatch.setattr(parallel, "_YOUNG", 0.0)
    args = {"how": "raise", "at": 30, "times": 3, "marks": str(tmp_path)}
    config = Config(env=FAILING, env_args=args, steps=10**9, metrics_seconds=0.1, logdir=str(tmp_path), **SMALL)
    seen = []

    def lines(line):
        seen.append(line)
        return line["restarts"] == 3 and line["step"] > seen[-2]["step"]

    assert gunreal.train(config, show=False, on_metrics=lines).metrics[-1]["stopped_by"] == "callback"


def test_a_hard_limit_of_open_files_bounds_the_scheduler(make, monkeypatch, capsys):
    """The run goes on with the processes that it has, and says so once."""
    run = make(scheduler="queue")
    capsys.readouterr()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    run.apply(Counts(4, 0, 0))
    run.apply(Counts(6, 0, 0))
    error = capsys.readouterr().err
    assert error.startswith("gunreal: the scheduler starts no more agents: 3 agent processes need ")
    assert error.count("\n") == 1 and run.remotes() == [] and run.counts == Counts(1, 0, 0)


def test_a_process_that_cannot_be_started_bounds_the_scheduler(make, monkeypatch, capsys):
    """Nothing of it stays open."""

    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    run, before = make(scheduler="queue"), open_files()
    capsys.readouterr()
    monkeypatch.setattr("subprocess.Popen", refuse)
    run.apply(Counts(4, 0, 0))
    error = capsys.readouterr().err
    assert error.startswith("gunreal: the scheduler starts no more agents: cannot start an agent process: [Errno 11]")
    assert run.remotes() == [] and run.counts == Counts(1, 0, 0) and not open_files() - before


@pytest.mark.parametrize(
    ("saved", "counts"),
    [
        ({}, (7, 3, 2)),
        ({"agents": 8}, (3, 1, 1)),
        ({"agents_per_process": 1}, (3, 1, 1)),
        ({"predictors": 2}, (3, 1, 1)),
        ({"trainers": 2}, (3, 1, 1)),
        ({"scheduler": "annealing"}, (3, 1, 1)),
    ],
)
def test_the_scheduler_goes_on_unless_a_number_is_given(of_six, saved, counts):
    """A run that had these options, and counts of 7, 3 and 2, is resumed with the usual ones."""
    options = dataclasses.asdict(of_six.config) | saved
    state = {**scheduler.Balancing().get_state(), "ceiling": [9, 9, 9]}
    extra = {"config": options, "scheduler": {"kind": options["scheduler"], "counts": [7, 3, 2], "state": state}}
    of_six.resumed = checkpoint.Checkpoint({}, extra, {}, Path(), 0, None)
    found = ParallelRunner(of_six)
    kept = found.contents().extra["scheduler"]
    assert found.counts == kept["counts"] == counts
    assert (kept["state"]["ceiling"] == (9, 9, 9)) == (not saved)


def test_bad_input_that_only_an_agent_process_sees_ends_the_run(make):
    run = make()
    run.system.config = dataclasses.replace(run.system.config, env="CartPole-v99")
    with pytest.raises(ConfigError, match="^[^\n]*CartPole-v99[^\n]*$"):
        run.run(lambda: None)


def test_agents_that_the_scheduler_removes_return_their_memory(monkeypatch):
    """Three of four processes go: so do their replay rings and what they had for themselves."""
    rollup = ram._rollup

    def shared_rollup(pid, proc):  # this process's libraries count for more when another one that uses them ends
        found = rollup(pid, proc)
        return found if pid != os.getpid() else {"Pss": found["Pss_Shmem"], "Pss_Shmem": found["Pss_Shmem"]}

    monkeypatch.setattr(ram, "_rollup", shared_rollup)
    options = {"agents": 8, "agents_per_process": 2, "tasks": ("vr",), "replay_size": 1000, "t_max": 5}
    options |= {"objective": "a3c", "hidden": 16, "scheduler": "queue", "scheduler_seconds": 0.1}
    spec, tasks, _, config = prepare(Config(env="gunreal/Catch-v0", steps=10**9, **options))
    config = on_this_machine(config)
    system = System(config, spec, tasks, None)
    seen = {}

    def propose(_, counts, observation):
        filled = min(remote.segment.end.min() for remote in run.remotes()) > 1050
        if "rings" in seen or not filled or not observation.frames_per_second:
            return counts
        seen["rings"] = 3 * system.layout.nbytes()  # they are full
        seen["own"] = sum(ram.own(remote.popen.pid) for remote in run.remotes()[1:])
        seen["before"], seen["observed"] = run.memory_in_use(), observation
        seen["trained"] = system.metrics.steps_trained
        return Counts(1, 1, 1)

    def tick():
        if "rings" in seen and system.metrics.steps_trained > seen["trained"] + 5 * config.min_batch:
            # Those that are left go on, and no batch has rollouts of the others any more.
            seen["after"] = run.memory_in_use()
            system.stop("steps")

    monkeypatch.setattr(scheduler.Balancing, "propose", propose)
    try:
        run = ParallelRunner(system)
        run.run(tick)
    finally:
        system.close()
    assert seen["rings"] > 40 * MIB
    # What processes share, Python's own files, counts for fewer when some go: not all of "own" comes back.
    assert seen["before"] - seen["after"] > 0.95 * seen["rings"] + 0.4 * seen["own"]
    found = seen["observed"]
    assert all(0 <= share <= 1 for share in (found.predictor_idle, found.trainer_idle, found.blocked))
    assert found.memory == pytest.approx(seen["before"], rel=0.1) and found.memory_limit == system.memory_limit
    assert seen["rings"] / 3 < found.memory_per_process < seen["before"]


def test_thousands_of_processes_raise_the_limit_of_open_files(monkeypatch):
    opened = len(os.listdir("/proc/self/fd"))
    low, scarce, raised = opened + 700, opened + 1000, []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (low, scarce))
    parallel.allow_open_files(10)
    with pytest.raises(ConfigError, match=rf"200 agent processes need \d+ open files, and the limit is {scarce};"):
        parallel.allow_open_files(200)
    assert not raised
    for hard in (10**6, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (low, hard))
        parallel.allow_open_files(200)
        soft, kept = raised.pop()
        assert 1200 < soft - opened < 1500 and kept == hard
