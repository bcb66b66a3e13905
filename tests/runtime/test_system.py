from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import Bench, FakeLearner
from training import open_files

from gunreal.acting.pool import Member
from gunreal.config.derived import per_process
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience import waits
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.records import checkpoint
from gunreal.runtime.system import System, make_layout, next_process, on_this_machine
from gunreal.tasks.registry import load_tasks
from gunreal.train import prepare

IMAGES = Spec((1, 84, 84), 4, "uint8", 6, t_max=20)


class GridLearner(FakeLearner):
    def predict(self, head, observations, past=None):
        assert observations.shape == (1, 4, 84, 84) and observations.dtype == np.uint8
        return (np.zeros((1, 20, 20) if head == "pc" else 1, np.float32),)


def layout(**options):
    config = resolved(Config(**({"tasks": ("pc", "vr", "rp"), "min_batch": 80} | options)))
    return make_layout(config, IMAGES, load_tasks(config.tasks, config.task), GridLearner())


def test_mailboxes_of_the_papers_tasks():
    made = layout(agents=32, agents_per_process=16)
    assert (made.agents, made.groups, made.replay_size, made.slots, made.extra) == (16, 2, 2000, 1, {})
    assert made.mailboxes == {
        "pc.bootstrap_step": ((), "int64"),
        "pc.bootstrap": ((20, 20), "float32"),
        "pc.sequence": ((1, 2), "int64"),
        "pc:returns": ((1, 20, 20, 20), "float32"),
        "pc:action": ((1, 20), "int32"),
        "vr.bootstrap_step": ((), "int64"),
        "vr.bootstrap": ((), "float32"),
        "vr.sequence": ((1, 2), "int64"),
        "vr:returns": ((1, 20), "float32"),
        "rp.sequence": ((1, 2), "int64"),
        "rp:class": ((1,), "int32"),
    }
    frames = 16 * (2000 + 3 * 20 + 4) * 84 * 84
    assert frames < made.nbytes() < 1.02 * frames  # pixels are stored once, and are nearly all of it


def test_without_tasks_rings_hold_the_rollouts_only():
    made = layout(tasks=(), min_batch="auto")
    frames = made.agents * (20 + (4 + 2) * 20) * 84 * 84  # four rollouts of each agent may wait
    assert made.agents == 12 and 0.8 * frames < made.nbytes() < frames


@pytest.mark.parametrize(
    ("agents", "min_batch", "slots"),
    [(1, 80, 4), (2, 80, 2), (4, 80, 1), (4, 100, 2), (3, 100, 2), (8, 80, 1), (16, 80, 1), (16, 640, 2), (16, 660, 3)],
)
def test_slots(agents, min_batch, slots):
    """Batches of 4, 5, 32 or 33 rollouts; unless made of groups, an earlier one may have all but one of a group's."""
    assert layout(agents=agents, agents_per_process=agents, min_batch=min_batch).slots == slots


def test_recorded_fields():
    with Bench(tasks=["helpers:Tracer", "vr"]) as bench:
        assert {name: field.key for name, field in bench.layout.extra.items()} == {"deep": "depth"}
        assert bench.layout.mailboxes["tracer:sequence"] == ((bench.layout.slots, 2), "int64")


@pytest.fixture
def system(tmp_path):
    system = make_system(tmp_path)
    yield system
    system.writer.close()


def make_system(folder, resumed=None, **options):
    options = {"tasks": ("vr", "rp"), "agents": 2, "agents_per_process": 2, "hidden": 8, "steps": 100} | options
    spec, tasks, _, config = prepare(Config(env="CartPole-v1", **options))
    return System(on_this_machine(config), spec, tasks, folder, resumed)


def test_stop_keeps_the_first_reason(system):
    assert system.stopped_by == ""
    system.stop("SIGTERM")
    system.fail(ZeroDivisionError("one"))
    system.fail(KeyError("two"))
    assert system.stopped_by == "SIGTERM" and isinstance(system.failure, ZeroDivisionError)
    system.close()


def test_as_many_checkpoints_are_kept_as_asked(tmp_path):
    system = make_system(tmp_path, keep_checkpoints=2)
    for _ in range(4):
        system.metrics.acted(10)
        system.save()
    assert sorted(path.name[-6:] for path in (tmp_path / "checkpoints").iterdir()) == ["30.npz", "40.npz"]
    system.writer.close(), system.close()


def test_warming_up_compiles_all_updates_and_changes_nothing(tmp_path):
    system = make_system(tmp_path)
    before = system.learner.get_state()
    system.warm_up()
    assert set(system.learner._metrics) == {("base", "vr", "rp"), ("base",)}  # PPO's first epoch, and the others
    assert system.learner.version == system.metrics.steps_trained == 0
    after = system.learner.get_state()
    assert all((after[name] == array).all() for name, array in before.items())
    system.close()


@pytest.mark.parametrize(("agents", "groups"), [(1, 8), (3, 4)])
def test_no_prediction_is_larger_than_max_batch(tmp_path, agents, groups):
    """One agent is a single group; of three, two are in the larger one."""
    system = make_system(tmp_path, agents=agents, agents_per_process=agents, max_batch=8, tasks=())
    assert system.groups_at_once == groups
    system.writer.close(), system.close()


def test_actions_and_samples_are_drawn_from_streams_of_their_own(system):
    seed = system.config.seed
    draws = system.predictors["base"].rng.random(4).tolist()
    others = [[seed], *([seed, agent, stream] for agent in range(3) for stream in range(3))]
    assert all(np.random.default_rng(other).random(4).tolist() != draws for other in others)
    system.close()


def test_a_prediction_of_nothing_is_not_counted(system, monkeypatch):
    for count in (0, 6):
        monkeypatch.setitem(system.predictors, "base", SimpleNamespace(serve=lambda records, count=count: count))
        system.predict("base", np.zeros(1))
    assert system.metrics.snapshot({}, {})["batch_base"] == 6
    system.close()


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
    system.close()


@pytest.mark.parametrize("serial", [False, True])
def test_waits_are_of_the_members_that_are_there(tmp_path, monkeypatch, serial):
    now = [0.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    system = make_system(tmp_path, serial=serial)
    members = [Member(system.pool.next_process(), system.layout) for _ in range(2)]
    for member in members:
        system.pool.add(member)
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] is None
    for member, seconds in zip(members, (0.25, 4.0), strict=True):
        member.segment.waits.begin(0)
        now[0] += seconds
        member.segment.waits.end(0)
    system.pool.remove(1).close()
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] == (
        None if serial else 250.0
    )  # in lockstep nobody waits
    assert system.metrics.snapshot(*system.gauges(4, 1, 1, 0))["wait_ms"] is None
    system.writer.close(), system.close()


@pytest.mark.parametrize("gpu", [False, True])
def test_number_of_concurrent_gradients(tmp_path, monkeypatch, gpu):
    monkeypatch.setattr(devices, "has_gpu", lambda: gpu)
    monkeypatch.setattr(devices, "cores", lambda: 3)
    system = make_system(tmp_path)
    assert system.at_once == (1 if gpu else 3)
    system.writer.close(), system.close()


def test_episodes_are_drained(system):
    """All of them, however many have ended."""
    for _ in range(10):
        system.episodes.put(np.tile([2.5, -1.5], 250).astype(system.episodes.dtype))
    system.drain_episodes()
    line = system.metrics.snapshot(*system.gauges(2, 1, 1, 0))
    assert (line["episodes"], line["score_mean"], line["score_max"]) == (5000, 0.5, 2.5)
    system.close()


def test_a_checkpoint_goes_on(system, tmp_path):
    system.metrics.acted(60)
    system.pool.next_process()
    system.save(state={"ring0/action": np.arange(3)}, blobs={"note": b"x"}, scheduler={"kind": "off"})
    saved = checkpoint.load(tmp_path)
    assert saved.step == 60 and saved.blobs == {"note": b"x"} and saved.extra["scheduler"] == {"kind": "off"}
    other = make_system(tmp_path, saved, seed=5)
    assert other.learner.weights_sha256() == system.learner.weights_sha256()
    assert other.metrics.step == 60 and other.pool.next == 1  # agents get new seeds
    system.close(), other.close()


@pytest.mark.parametrize(
    ("before", "after", "first"), [((12, 4), (12, 3), 7), ((12, 3), (12, 4), 4), ((7, 4), (8, 2), 3)]
)
def test_no_agent_gets_the_seeds_of_one_before_the_resume(before, after, first):
    """After five processes. Seven agents have a process each; the number of an agent is in its seeds."""
    saved = dict(zip(("agents", "agents_per_process"), before, strict=True))
    resumed = SimpleNamespace(extra={"config": saved, "processes": 5})
    config = Config(agents=after[0], agents_per_process=after[1])
    assert next_process(resumed, per_process(config)) == first


def test_a_checkpoint_that_does_not_fit_is_one_line(system, tmp_path):
    """The shapes of an environment or a plug-in may change between a run and its resumption."""
    system.save()
    system.close()
    with pytest.raises(
        ConfigError, match=r"changed since .*/step_000000000000\.npz: .*; install the former .*"
    ) as caught:
        make_system(tmp_path, checkpoint.load(tmp_path), hidden=16)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "serial", "updates"), [("SIGINT", False, 0), ("SIGINT", True, 9), ("steps", False, 9)]
)
def test_a_signal_ends_the_updates_of_a_batch(tmp_path, reason, serial, updates):
    """A serial run finishes them, because it goes on exactly."""
    system = make_system(tmp_path, serial=serial, tasks=())
    system.stop(reason)
    with contextlib.closing(Member(0, system.layout)) as blank:
        system.trainer.work(system.batcher.gather([(blank, i % 2, 0) for i in range(system.batcher.rollouts)]))
    assert system.metrics.snapshot({}, {})["updates"] == updates
    system.close()


def test_trackers_are_closed_when_nothing_else_is_left(system, monkeypatch):
    """They may wait for their network. Nothing that goes wrong before leaves them open."""
    left = []
    system.pool.add(Member(system.pool.next_process(), system.layout))
    with monkeypatch.context() as patch:
        patch.setattr(system.writer, "close", lambda: left.append(len(system.pool.members())))
        patch.setattr(system.rollouts, "close", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            system.close()
    assert left == [0]
    system.rollouts.close(), system.episodes.close()


def test_a_full_disk_is_reported(system, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    system.save()
    err = capsys.readouterr().err
    assert err.startswith("gunreal: no checkpoint at step 0: ") and "free some space" in err and err.count("\n") == 1
    system.close()


def test_close_leaves_nothing(tmp_path):
    before = open_files()
    system = make_system(tmp_path)
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
    system.writer.close()
    system.close()
    assert left[:2] == [("leave", 0), ("leave", 1)]  # all are told before the first is waited for
    assert ("close", 1) in left and system.pool.members() == []
    assert not open_files() - before
