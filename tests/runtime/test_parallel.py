from __future__ import annotations

import os
import resource
import threading
from types import SimpleNamespace

import pytest
from fake_remotes import MIB, FakeRemote, make_run

from gunreal.acting.pool import TaskFailure
from gunreal.acting.process import EXIT_BAD_INPUT, EXIT_TASK_ERROR
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.step import AgentFailure
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


def test_all_processes_are_started_where_memory_allows(clock, capsys):
    run = make_run()
    run._start_affordable()
    assert [remote.process for remote in run.remotes()] == [0, 1, 2] and run.counts == Counts(3, 1, 1)
    assert capsys.readouterr().err == ""


def test_a_process_is_known_before_it_starts(clock, monkeypatch):
    """Its first requests would be dropped, and it would wait for ever."""
    run, known = make_run(), []
    monkeypatch.setattr(FakeRemote, "start", lambda self: known.append(run.system.pool.get(self.process) is self))
    run._start_affordable()
    assert known == [True] * 3


def test_as_many_processes_as_memory_allows(clock, capsys):
    """The server has 500 MiB and needs as much for updates; a process has 50 MiB of rings, and 100 MiB beside them."""
    run = make_run(memory_limit=1400 * MIB)  # 95 % of it are 1,330
    run._start_affordable()
    assert len(run.remotes()) == run.counts.processes == 2
    assert (
        capsys.readouterr().err == "gunreal: started only 4 of 6 agents, because more would exceed the memory limit\n"
    )


def test_no_process_fits(clock):
    with pytest.raises(
        ConfigError, match="limit of 1,200 MiB leaves no room .* server takes 1,000 MiB .* 2 agents 150 MiB"
    ):
        make_run(memory_limit=1200 * MIB)._start_affordable()


def test_dead_and_hanging_processes_are_replaced(clock, capsys):
    run = make_run()
    run._start_affordable()
    dead, hanging, well = run.remotes()
    for remote in run.remotes():
        remote.segment.end[:] = 100
    clock.seconds = 500.0
    dead.popen.returncode, hanging.stuck, well.stuck = -11, 31.0, 29.0
    run._supervise()
    assert [remote.process for remote in run.remotes()] == [2, 3, 4]
    assert dead.log == ["start", "close"] and hanging.log == ["start", "kill", "close"]  # with all of their output
    assert well.log == ["start", "trim"]
    err = capsys.readouterr().err
    assert "agent process 0 ended with code -11; restarting it with empty replay:\nTraceback: it hurts\n" in err
    assert "agent process 1 did not finish a step within 30 s; restarting" in err
    assert run.system.metrics.snapshot({}, {})["restarts"] == 2


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


def test_one_process_that_keeps_failing_ends_the_run(clock):
    run = make_run()
    run._start_affordable()
    for well in run.remotes()[1:]:
        well.segment.end[:] = 10_000
    for process in (0, 3):
        run.system.pool.get(process).popen.returncode = 1
        run._supervise()
        clock.seconds += 60  # the others have lived long
        run.remotes()[-1].started = clock.seconds
    run.system.pool.get(4).popen.returncode = 1
    with pytest.raises(
        AgentFailure, match="agent process 4 ended with code 1, 3 times in a row .*\nTraceback: it hurts$"
    ):
        run._supervise()
    assert [remote.process for remote in run.remotes()] == [1, 2]


def test_single_failures_do_not_end_the_run(clock):
    run = make_run()
    run._start_affordable()
    for _ in range(2):
        for remote in run.remotes():
            remote.popen.returncode = 1
        run._supervise()
    assert [(remote.process, remote.failures) for remote in run.remotes()] == [(6, 2), (7, 2), (8, 2)]


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


@pytest.mark.parametrize(("code", "error"), [(EXIT_BAD_INPUT, ConfigError), (EXIT_TASK_ERROR, TaskFailure)])
def test_what_a_new_process_would_repeat_ends_the_run(clock, monkeypatch, code, error):
    run = make_run()
    run._start_affordable()
    remote = run.remotes()[0]
    remote.popen.returncode = code
    monkeypatch.setattr(remote, "errors", lambda: "output of an environment\nunknown environment")
    with pytest.raises(error, match="^unknown environment$"):
        run._supervise()


def test_apply(clock, monkeypatch):
    run = make_run()
    sizes = {}
    for name, crew in {**run.crews, "train": run.trainers}.items():
        monkeypatch.setattr(crew, "resize", lambda size, name=name: sizes.__setitem__(name, size))
    run._start_affordable()
    first = run.remotes()
    run.apply(Counts(5, 2, 3))
    assert [remote.process for remote in run.remotes()] == [0, 1, 2, 3, 4] and run.counts == Counts(5, 2, 3)
    assert sizes == {"base": 2, "pc": 2, "train": 3}
    done = []
    for remote in run.remotes():
        remote.log = done
    run.apply(Counts(1, 2, 2))  # the newest go
    assert run.remotes() == first[:1] and sizes == {"base": 2, "pc": 2, "train": 2}
    assert done == ["leave"] * 4 + ["close"] * 4  # so that they end at the same time


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
    written = {}
    run.system.save = written.update
    run.save()
    assert written["scheduler"] == {"kind": "queue", "counts": counts, "state": run._steering.policy.get_state()}


def test_one_batch_more_is_ready_than_are_computed():
    run, go_on, taken = make_run(), threading.Event(), []
    run.trainers._fetch = lambda timeout: ["batch"]
    run.trainers._work = lambda batch: (taken.append(batch), go_on.wait(60))
    run.trainers.resize(6)
    threading.Event().wait(0.3)
    assert len(taken) == 3
    run.trainers.resize(0)
    go_on.set()
    run.trainers.stop()
    assert len(taken) == 3  # those that waited for a place took nothing once they were to end


def test_removed_agents_return_their_memory(tmp_path, monkeypatch):
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
    system = System(config, spec, tasks, tmp_path, None)
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
        system.writer.close()
        system.close()
    assert seen["rings"] > 40 * MIB
    # What processes share, Python's own files, counts for fewer when some go: not all of "own" comes back.
    assert seen["before"] - seen["after"] > 0.95 * seen["rings"] + 0.4 * seen["own"]


@pytest.fixture
def open_files():
    """The number of files that are open. The limits are as they were after a test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_thousands_of_processes_raise_the_limit_of_open_files(open_files, monkeypatch):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low, scarce = open_files + 700, open_files + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    parallel.allow_open_files(10)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
    parallel.allow_open_files(200)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 1200 < soft - open_files < 1500
    monkeypatch.setattr(resource, "getrlimit", lambda _: (low, scarce))
    with pytest.raises(ConfigError, match=rf"200 agent processes need \d+ open files, and the limit is {scarce};"):
        parallel.allow_open_files(200)
    made = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (low, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    parallel.allow_open_files(200)
    ((soft, hard),) = made
    assert 1200 < soft - open_files < 1500 and hard == resource.RLIM_INFINITY
