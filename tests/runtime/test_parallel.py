from __future__ import annotations

import os
import resource
from types import SimpleNamespace

import pytest
from fake_remotes import MIB, FakeRemote, make_run

from gunreal.acting.process import EXIT_BAD_INPUT
from gunreal.config.schema import Config, ConfigError
from gunreal.runtime import parallel, ram, scheduler
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.scheduler import Counts
from gunreal.runtime.system import System, on_this_machine
from gunreal.train import prepare


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(parallel.time, "monotonic", lambda: now.seconds)
    monkeypatch.setattr(parallel, "Remote", FakeRemote)
    monkeypatch.setattr(ram, "in_use", lambda pids: 500 * MIB)
    return now


def test_a_process_is_known_before_it_starts(clock, monkeypatch):
    """Its first requests would be dropped, and it would wait for ever."""
    run, known = make_run(), []
    monkeypatch.setattr(FakeRemote, "start", lambda self: known.append(run.system.pool.get(self.process) is self))
    run._start_affordable()
    assert known == [True] * 3


@pytest.mark.parametrize(
    ("lived", "steps", "at_once"), [(5.0, 3, True), (5.0, 400, True), (500.0, 3, True), (500.0, 400, False)]
)
def test_errors_at_the_start(clock, lived, steps, at_once):
    """Soon after its start, or before a first rollout: a slow machine's import takes as long as it takes."""
    run = make_run()
    run._start_affordable()
    remote = run.remotes()[0]
    remote.failures = 1
    remote.segment.end[:], clock.seconds, remote.popen.returncode = steps, lived, 1
    run._supervise()
    assert run.remotes()[-1].failures == (2 if at_once else 0)
    assert run.remotes()[0].log == ["start", "pass on warnings"]


def test_agents_that_end_with_the_run_are_not_restarted(clock, monkeypatch):
    """A signal that ends the run may have been sent to all processes. None of them is restarted."""
    run = make_run()
    run.crews, run.trainers = {}, SimpleNamespace(resize=lambda size: None, stop=lambda: None)

    def sleep(seconds):
        run.system.stopped_by = "SIGTERM"
        run.remotes()[0].popen.returncode = -15

    monkeypatch.setattr(parallel.time, "sleep", sleep)
    run.run(lambda: None)
    assert [(remote.process, remote.log) for remote in run.remotes()] == [(n, ["start"]) for n in range(3)]


def test_bad_input_that_only_an_agent_process_sees_ends_the_run(clock, monkeypatch):
    run = make_run()
    run._start_affordable()
    remote = run.remotes()[0]
    remote.popen.returncode = EXIT_BAD_INPUT
    monkeypatch.setattr(remote.output, "last", lambda: "output of an environment\nunknown environment")
    with pytest.raises(ConfigError, match="^unknown environment$"):
        run._supervise()


def test_a_hard_limit_of_open_files_bounds_the_scheduler(clock, monkeypatch, capsys):
    """The run goes on with the processes that it has, and says so once."""
    run, asked = make_run(), []
    run.crews, run.trainers = {}, SimpleNamespace(resize=lambda size: None)
    run._start_affordable()

    def allow(processes):
        asked.append(processes)
        if processes > 1:
            raise ConfigError("raise it")

    monkeypatch.setattr(parallel, "allow_open_files", allow)
    run.apply(Counts(4, 1, 1))
    run.apply(Counts(6, 2, 1))
    run.apply(Counts(6, 2, 1))
    run.apply(Counts(2, 2, 1))
    assert capsys.readouterr().err == "gunreal: the scheduler starts no more agents: raise it\n"
    assert asked == [1, 2, 2] and len(run.remotes()) == 2 and run.counts == Counts(2, 2, 1)


def test_an_interval_begins_after_each_change(clock, monkeypatch):
    run, begun = make_run(), []
    run.crews, run.trainers = {}, SimpleNamespace(resize=lambda size: None, stop=lambda: None)
    run._steering = SimpleNamespace(tick=lambda *_: Counts(2, 1, 1), begin=lambda: begun.append(run.counts))
    monkeypatch.setattr(parallel.time, "sleep", lambda _: None)
    run.run(lambda: setattr(run.system, "stopped_by", "steps"))
    assert begun == [Counts(2, 1, 1)]


@pytest.mark.parametrize(
    ("saved", "counts"),
    [
        ({}, Counts(7, 3, 2)),
        ({"agents": 8}, Counts(3, 1, 1)),
        ({"agents_per_process": 1}, Counts(3, 1, 1)),
        ({"predictors": 2}, Counts(3, 1, 1)),
        ({"trainers": 2}, Counts(3, 1, 1)),
        ({"scheduler": "annealing"}, Counts(3, 1, 1)),
    ],
)
def test_the_scheduler_goes_on_unless_a_number_is_given(saved, counts):
    """A run that had these options, and counts of 7, 3 and 2, is resumed with the usual ones."""
    options = {"agents": 6, "agents_per_process": 2, "predictors": 1, "trainers": 1, "scheduler": "queue"} | saved
    state = {**scheduler.Balancing().get_state(), "ceiling": [9, 9, 9]}
    found = {"kind": options["scheduler"], "counts": [7, 3, 2], "state": state}
    run = make_run(resumed=SimpleNamespace(extra={"config": options, "scheduler": found}), scheduler="queue")
    assert run.counts == counts and (run._steering.policy.ceiling is not None) == (not saved)
    kept = {"kind": "queue", "counts": counts, "state": run._steering.policy.get_state()}
    assert run.contents().extra["scheduler"] == kept


def test_removed_agents_return_their_memory(monkeypatch):
    """Three of four processes go: so do their replay rings and what they had for themselves."""
    rollup = ram._rollup

    def shared_rollup(pid, proc):  # this process's libraries count for more when another one that uses them ends
        found = rollup(pid, proc)
        return found if pid != os.getpid() else {"Pss": found["Pss_Shmem"], "Pss_Shmem": found["Pss_Shmem"]}

    monkeypatch.setattr(ram, "_rollup", shared_rollup)
    config = Config(
        env="gunreal/Catch-v0", agents=8, agents_per_process=2, tasks=("vr",), replay_size=1000, steps=10**9, t_max=5
    )
    spec, tasks, _, config = prepare(config)
    config = on_this_machine(config)
    system = System(config, spec, tasks, None)
    seen = {}

    def tick():
        ends = [remote.segment.end.min() for remote in run.remotes()]
        if not seen and len(ends) == 4 and min(ends) > 1050:  # the rings are full
            seen["rings"] = 3 * system.layout.nbytes()
            seen["own"] = sum(ram.own(remote.popen.pid) for remote in run.remotes()[1:])
            seen["before"] = run.memory_in_use()
            run.apply(Counts(1, 1, 1))
            seen["trained"] = system.metrics.steps_trained
        elif seen and system.metrics.steps_trained > seen["trained"] + 5 * config.min_batch:
            # Those that are left go on, and no batch has rollouts of the others any more.
            seen["after"] = run.memory_in_use()
            system.stop("steps")

    try:
        run = ParallelRunner(system)
        run.run(tick)
    finally:
        system.close()
    assert seen["rings"] > 40 * MIB
    # What processes share, Python's own files, counts for fewer when some go: not all of "own" comes back.
    assert seen["before"] - seen["after"] > 0.95 * seen["rings"] + 0.4 * seen["own"]


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
