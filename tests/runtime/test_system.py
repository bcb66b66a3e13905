from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import FakeLearner
from training import open_files

from gunreal.acting.pool import Member
from gunreal.config.derived import per_process
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience import waits
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.records import checkpoint
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System, make_layout, next_process, on_this_machine
from gunreal.runtime.training import Training
from gunreal.train import prepare


def test_without_tasks_rings_hold_the_rollouts_only():
    made = make_layout(resolved(Config()), Spec((1, 84, 84), 4, "uint8", 6, t_max=20), (), FakeLearner())
    frames = made.agents * (20 + (4 + 2) * 20) * 84 * 84  # four rollouts of each agent may wait
    assert made.agents == 12 and 0.8 * frames < made.nbytes() < frames


def make_system(resumed=None, **options):
    options = {"tasks": ("vr", "rp"), "agents": 2, "agents_per_process": 2, "hidden": 8, "steps": 100} | options
    spec, tasks, _, config = prepare(Config(env="CartPole-v1", **options))
    return System(on_this_machine(config), spec, tasks, resumed)


@pytest.fixture
def make():
    """Makes systems, which are closed in the end."""
    with contextlib.ExitStack() as last:

        def make(resumed=None, **options):
            system = make_system(resumed, **options)
            last.callback(system.close)
            return system

        yield make


def saved_by(system, folder):
    """A checkpoint of the run, loaded again."""
    with contextlib.closing(Training(system.config, ParallelRunner(system), folder)) as run:
        run.runner.close = lambda: None  # the fixture closes the system
        run.save()
    return checkpoint.load(folder)


@pytest.fixture
def system(make):
    return make()


def test_warming_up_compiles_all_updates_and_changes_nothing(make):
    system = make()
    before = system.learner.get_state()
    system.warm_up()
    assert set(system.learner._compiled) == {("base", "vr", "rp", "now"), ("base", "now")}  # PPO's epochs
    assert system.learner.version == system.metrics.steps_trained == 0
    after = system.learner.get_state()
    assert all((after[name] == array).all() for name, array in before.items())


@pytest.mark.parametrize(("agents", "groups", "gpu", "gradients"), [(1, 8, True, 1), (3, 4, False, 3)])
def test_how_much_is_computed_at_once(make, monkeypatch, agents, groups, gpu, gradients):
    """Of three agents, two are in the larger group. `max_batch` bounds a prediction, and the cores the gradients."""
    monkeypatch.setattr(devices, "has_gpu", lambda: gpu)
    monkeypatch.setattr(devices, "cores", lambda: 3)
    system = make(agents=agents, agents_per_process=agents, max_batch=8, tasks=())
    assert (system.groups_at_once, system.at_once) == (groups, gradients)


def test_actions_and_samples_are_drawn_from_streams_of_their_own(system):
    seed = system.config.seed
    draws = system.predictors["base"].rng.random(4).tolist()
    others = [[seed], *([seed, agent, stream] for agent in range(3) for stream in range(3))]
    assert all(np.random.default_rng(other).random(4).tolist() != draws for other in others)


def test_the_budget_ends_the_run(system):
    member = Member(system.pool.next_process(), system.layout)
    system.pool.add(member)
    requests = np.array([(0, 0), (0, 1)], system.requests["base"].dtype)
    for _ in range(49):
        system.predict("base", requests)
    system.predict("vr", requests)  # bootstraps are no agent steps
    assert system.metrics.step == 98 and system.stopped_by == ""
    system.predict("base", requests)
    assert system.metrics.step == 100 and system.stopped_by == "steps"
    line = system.metrics.snapshot(*system.gauges(2, 1, 1, 10**9))
    assert (line["agents"], line["memory_bytes"], line["batch_base"], line["queue_train"]) == (2, 10**9, 2.0, 0)
    assert line["memory_limit"] == system.memory_limit > 10**9


@pytest.mark.parametrize("runner", ["parallel", "serial"])
def test_waits_are_of_the_members_that_are_there(make, monkeypatch, runner):
    now = [0.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    system = make(runner=runner)
    members = [Member(system.pool.next_process(), system.layout) for _ in range(2)]
    for member in members:
        system.pool.add(member)
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] is None
    for member, seconds in zip(members, (0.25, 4.0), strict=True):
        member.segment.waits.begin(0)
        now[0] += seconds
        member.segment.waits.end(0)
    system.pool.remove(1).close()
    in_lockstep_nobody_waits = None if runner == "serial" else 250.0
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] == in_lockstep_nobody_waits
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] is None


def test_episodes_are_drained(system):
    """All of them, however many have ended."""
    for _ in range(10):
        system.episodes.put(np.tile([2.5, -1.5], 250).astype(system.episodes.dtype))
    system.drain_episodes()
    line = system.metrics.snapshot(*system.gauges(2, 1, 1, 0))
    assert (line["episodes"], line["score_mean"], line["score_max"]) == (5000, 0.5, 2.5)


def test_a_checkpoint_goes_on(system, make, tmp_path):
    system.metrics.acted(60)
    system.pool.next_process()
    saved = saved_by(system, tmp_path)
    assert saved.step == 60 and saved.extra["scheduler"] is None
    other = make(saved, seed=5)
    assert checkpoint.weights_sha256(other.learner.get_state()) == checkpoint.weights_sha256(system.learner.get_state())
    assert other.metrics.step == 60 and other.pool.next == 1  # agents get new seeds


@pytest.mark.parametrize(
    ("before", "after", "first"), [((12, 4), (12, 3), 7), ((12, 3), (12, 4), 4), ((7, 4), (8, 2), 3)]
)
def test_no_agent_gets_the_seeds_of_one_before_the_resume(before, after, first):
    """After five processes. Seven agents have a process each; the number of an agent is in its seeds."""
    saved = dict(zip(("agents", "agents_per_process"), before, strict=True))
    resumed = SimpleNamespace(extra={"config": saved, "processes": 5})
    config = Config(agents=after[0], agents_per_process=after[1])
    assert next_process(resumed, per_process(config)) == first


def test_a_checkpoint_that_does_not_fit_is_one_line(system, make, tmp_path):
    """The shapes of an environment or a plug-in may change between a run and its resumption."""
    saved = saved_by(system, tmp_path)
    with pytest.raises(
        ConfigError, match=r"changed since .*/step_000000000000\.npz: .*; install the former .*"
    ) as caught:
        make(saved, hidden=16)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "runner", "updates"), [("SIGINT", "parallel", 0), ("SIGINT", "serial", 9), ("steps", "parallel", 9)]
)
def test_a_signal_ends_the_updates_of_a_batch(make, reason, runner, updates):
    """A serial run finishes them, because it goes on exactly."""
    system = make(runner=runner, tasks=())
    system.stop(reason)
    with contextlib.closing(Member(0, system.layout)) as blank:
        system.trainer.work(system.batcher.gather([(blank, i % 2, 0) for i in range(system.batcher.rollouts)]))
    assert system.metrics.snapshot({}, {})["updates"] == updates


def test_close_leaves_nothing():
    before = open_files()
    system = make_system()
    left = []

    class Leaving(Member):
        def leave(self):
            left.append(("leave", self.process))
            super().leave()

        def close(self):
            left.append(("close", self.process))
            super().close()

    for _ in range(2):
        system.pool.add(Leaving(system.pool.next_process(), system.layout))
    system.close()
    assert left[:2] == [("leave", 0), ("leave", 1)]  # all are told before the first is waited for
    assert ("close", 1) in left and system.pool.members() == []
    assert not open_files() - before
