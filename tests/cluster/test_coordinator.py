from __future__ import annotations

import types

import numpy as np
import pytest
from ray_standin import Engine

from gunreal.cluster import coordinator
from gunreal.cluster.coordinator import Coordinator, Gradient
from gunreal.cluster.node import Answer, Description, node_fields
from gunreal.cluster.reducer import Refused
from gunreal.cluster.report import Report
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.spec import Spec
from gunreal.records.metrics import RunMetrics
from gunreal.runtime import base

STATE = {"weights/a": np.zeros(3), "optimizer/000": np.array(0), "version": np.array(0)}


class Closable(Engine):
    is_closed = False

    def close(self):
        self.is_closed = True


def test_a_checkpoint_of_another_network_refuses_each_machine():
    """No later machine finds a model without reducers."""
    refused = []
    found = Coordinator.__new__(Coordinator)
    found._model = found._shards = None
    found.resumed = types.SimpleNamespace(state=STATE | {"weights/a": np.zeros(4)})
    found._fleet = types.SimpleNamespace(lost=lambda member, error: refused.append((member, error)))
    for number in range(2):
        found._welcome(number, Description(STATE, {}, 1))
    assert [member for member, _ in refused] == [0, 1]
    assert all(isinstance(error, Refused) and "weights/a has shape (4,)" in str(error) for _, error in refused)
    assert found._model is None


def test_a_run_starts_with_the_weights_of_another_one(capsys, monkeypatch, tmp_path):
    """The nodes themselves need no folder of that run."""
    monkeypatch.setattr(coordinator.shards, "Shards", lambda engine, fields, shard, count: shard)
    found = Coordinator.__new__(Coordinator)
    found._model = found._shards = found.resumed = None
    first = {"weights/a/kernel": np.ones(3), "version": np.array(7)}
    extra = {"config": {"algorithm": "ppo"}}
    found._start = types.SimpleNamespace(state=first, path="first.npz", extra=extra)
    found.config, found._fields, found._tasks, found._engine = Config(nodes=2), {}, ["vr"], Closable("a")
    found._round, found.run_dir = types.SimpleNamespace(begin=lambda now: None), tmp_path
    own = {"weights/a/kernel": np.zeros(3), "weights/vr/0/kernel": np.zeros(2), "optimizer/000": 0, "version": 0}
    found._welcome(types.SimpleNamespace(), Description(own, {}, 1))
    assert found._shards.weights.tolist() == [1, 1, 1, 0, 0] and found._model.version == 0
    assert capsys.readouterr().err == "gunreal: starts with the weights of first.npz, except for vr\n"
    assert node_fields(Config(nodes=2, init="first"), 1)["init"] == ""


BEFORE = np.zeros(3, np.float32)


def with_a_gradient(updated, refused, *hosts):
    """A coordinator that can take a step, and its gradient."""
    found = Coordinator.__new__(Coordinator)

    def absorb(vectors):
        found._model.moments.vector = vectors[0]
        return []

    refused.ended = lambda seconds, computing: None
    found._report, found._engine = refused, Engine(*hosts)
    found._model = types.SimpleNamespace(version=4, moments=types.SimpleNamespace(vector=BEFORE, absorb=absorb))
    found._round = types.SimpleNamespace(began=0.0, begin=lambda now: None)
    found._shards = types.SimpleNamespace(weights=[], begin=lambda *_: None)
    found.metrics = types.SimpleNamespace(updated=lambda *args, **options: updated.append(args))
    found._rate, found._send_all = lambda: 0.1, lambda: None
    found.in_haste, found._lost = False, 0
    answer = Answer(True, np.ones(3, np.float32), 80, 0.1, 0, {})
    found._gradients = [Gradient(types.SimpleNamespace(slot=0), [], answer)]
    return found, answer


def test_a_step_is_repeated_until_no_machine_is_left_for_a_reducer():
    """Without one the round is given up, so that the run can be stopped."""
    found, _ = with_a_gradient([], types.SimpleNamespace(refused=0), "a")
    steps = []

    def finish(_):
        steps.append(found._model.version)
        assert len(steps) < 4
        found._engine.hosts = ["a"] if len(steps) < 3 else []

    found._shards.finish = finish
    found._update()
    assert steps == [5, 5, 5] and found._model.version == 4 and found._model.moments.vector is BEFORE


@pytest.mark.parametrize(("in_haste", "attempts"), [(False, 3), (True, 1)])
def test_reducers_that_keep_dying_do_not_keep_the_run_from_ending(capsys, in_haste, attempts):
    """Between rounds the run writes metrics and sees that it has been stopped."""
    found, _ = with_a_gradient([], types.SimpleNamespace(refused=0), "a")
    steps, found.in_haste = [], in_haste
    found._shards.finish = lambda _: steps.append(1)
    found._fleet = types.SimpleNamespace(recall=lambda version: None)
    found._update()
    assert len(steps) == attempts and found._model.version == 4 and found._model.moments.vector is BEFORE
    assert capsys.readouterr().err.count("reducers keep failing") == 1


def test_moments_do_not_change_with_a_step_that_was_not_taken():
    """The gradient was not finite, so that no reducer has rescaled the value layer either."""
    updated, refused = [], types.SimpleNamespace(refused=0)
    found, answer = with_a_gradient(updated, refused)
    found._shards.finish = lambda _: np.inf
    found._update()
    assert found._model.moments.vector is BEFORE and refused.refused == 1 and not updated
    found._shards.finish = lambda _: 2.0
    found._gradients = [Gradient(types.SimpleNamespace(slot=0), [], answer)]
    found._update()
    assert found._model.moments.vector is answer.moments and updated == [(80,)]


@pytest.mark.parametrize(("sync", "version", "late"), [("on", 4, False), ("on", 3, True), ("off", 3, False)])
def test_agent_steps_of_gradients_that_come_late_are_not_trained_on(sync, version, late):
    """They are agent steps all the same."""
    metrics = RunMetrics()
    metrics.acted(80)
    metrics.trained(80, [], {})
    answer = Answer(True, np.ones(3, np.float32), 80, 0.1, 0, metrics.take())
    found = Coordinator.__new__(Coordinator)
    found.config, found.metrics, found._report, found._gradients = Config(sync=sync), RunMetrics(), Report(), []
    found._model = types.SimpleNamespace(version=4)
    found._round = types.SimpleNamespace(answered=lambda slot, seconds: None)
    found._fleet = types.SimpleNamespace(result=lambda member: answer)
    member = types.SimpleNamespace(description=1, answers=0, version=version, sent=0.0, slot=0, slices=[])
    found._receive(member)
    assert (found.metrics.step, found.metrics.steps_trained) == (80, 0 if late else 80)
    assert [gradient.member for gradient in found._gradients] == [member] * (not late)


def test_nodes_learn_with_the_entropy_weight_and_the_progress_of_the_whole_run():
    """A node does not know how many agent steps the others have taken."""
    found, sent = Coordinator.__new__(Coordinator), []
    found.config = resolved(Config(entropy=0.1, entropy_end=0.0, steps=1000))
    found.metrics = types.SimpleNamespace(step=250)
    found._model = types.SimpleNamespace(version=4, size=3, moments=types.SimpleNamespace(vector=np.zeros(2)))
    found._shards = types.SimpleNamespace(weights=["part"])
    found._report = types.SimpleNamespace(sent=lambda size: None)
    method = types.SimpleNamespace(remote=lambda *args: sent.append(args) or ["answer", "slice"])
    actor = types.SimpleNamespace(gradient=types.SimpleNamespace(options=lambda num_returns: method))
    found._send(types.SimpleNamespace(actor=actor))
    assert sent[0][0] == 4 and sent[0][1][1:] == pytest.approx((0.075, 0.25)) and sent[0][3] == "part"


def test_nodes_have_time_to_wait_for_rollouts(tmp_path, monkeypatch):
    """Most gradients find their rollouts ready, because those of a group arrive together."""
    monkeypatch.setattr(coordinator, "Engine", lambda config: Closable("a"))
    config = resolved(Config(algorithm="a3c", agents=6, min_batch=20, nodes=2))
    found = Coordinator(config, Spec((4,), 1, "float32", 2), (), tmp_path, None)
    for _ in range(20):
        for seconds in (0.3, 0.02, 0.02):
            found._round.answered(0, seconds)
    assert 0.6 <= found._round.deadline() < 0.65


@pytest.mark.parametrize(("module", "name"), [(base, "MetricsWriter"), (coordinator, "Fleet")])
def test_a_failed_start_ends_ray(tmp_path, monkeypatch, module, name):
    engine = Closable("a")

    def fail(*_):
        raise OSError("broken")

    monkeypatch.setattr(coordinator, "Engine", lambda config: engine)
    monkeypatch.setattr(module, name, fail)
    with pytest.raises(OSError, match="broken"):
        Coordinator(resolved(Config(nodes=2)), Spec((4,), 1, "float32", 2), (), tmp_path, None)
    assert engine.is_closed


def test_the_learning_rate_follows_the_agent_steps_and_the_number_of_all_nodes():
    found = Coordinator.__new__(Coordinator)
    found.config = resolved(Config(learning_rate=0.1, steps=1000, rate_scaling="linear"))
    found.metrics, found._fleet = types.SimpleNamespace(step=250), types.SimpleNamespace(ready=lambda: [None] * 4)
    assert found._rate() == pytest.approx(0.3)


def test_a_round_waits_for_nodes_that_compute_for_it_and_were_in_time():
    found = Coordinator.__new__(Coordinator)
    values = {
        "new": (4, 0.0, 1),
        "prompt": (4, 0.9, 1),
        "slow": (4, 1.1, 1),
        "older": (3, 0.9, 1),
        "free": (4, 0.9, None),
    }
    members = [types.SimpleNamespace(version=v, took=took, pending=p, name=n) for n, (v, took, p) in values.items()]
    found._model, found._round = types.SimpleNamespace(version=4), types.SimpleNamespace(deadline=lambda: 1.0)
    found._fleet = types.SimpleNamespace(ready=lambda: members)
    assert [member.name for member in found._awaited()] == ["new", "prompt"]


def test_a_node_computes_one_gradient_for_a_round():
    found, sent = Coordinator.__new__(Coordinator), []
    here, free, busy = (types.SimpleNamespace(pending=pending) for pending in (None, None, 1))
    found._fleet, found._send = types.SimpleNamespace(ready=lambda: [here, free, busy]), sent.append
    found._gradients = [Gradient(here, [], None)]
    found._send_all()
    assert sent == [free]
