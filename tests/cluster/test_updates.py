"""Gradients that arrive become updates, each of them once, also while reducers fail."""

from __future__ import annotations

import contextlib
import dataclasses
import types

import numpy as np
import pytest
from ray_standin import Engine, RayError, Ref

from gunreal.cluster import coordinator
from gunreal.cluster.coordinator import Coordinator
from gunreal.cluster.node import Answer
from gunreal.cluster.reducer import Own, Reducer, Shard
from gunreal.cluster.shards import Shards
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.config.version import VERSION
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec
from gunreal.records.metrics import RunMetrics

# A step does not depend on averages, so that a reducer that has taken the place of another one takes the same step.
FIELDS = {"optimizer": "rmsprop", "rms_decay": 0.0, "epsilon": 1.0, "max_grad_norm": 0.0, "reduction": "mean"}
GRADIENTS = [np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)]
SHARD = Shard(np.ones((1, 4), np.float32), [np.zeros(4, np.float32)], 0)
UNTRAINED = {"state": np.zeros(3, np.float32)}


class Fleet:
    """Two nodes, whose gradients arrive in the same pass. `disturb` is called between them."""

    replaced = 0

    def __init__(self, run, parts):
        self._run, self.disturb = run, lambda: None
        answer = Answer(True, {}, 80, 0.1, 0, RunMetrics().take())
        common = {"description": 1, "answers": 0, "version": 0, "sent": 0.0, "answer": answer}
        self._members = [
            types.SimpleNamespace(slot=slot, slices=[Ref(gradient[part].copy()) for part in parts], **common)
            for slot, gradient in enumerate(GRADIENTS)
        ]

    def wait(self, seconds):
        yield self._members[0]
        self.disturb()
        yield self._members[1]
        self._run.stop("steps")

    def result(self, member):
        return member.answer

    def ready(self):
        return []

    def look(self):
        pass

    def recall(self, version):
        pass


def make(folder, monkeypatch, sync):
    """A run that is about to receive two gradients, and the second of its two reducers."""
    config, engine = resolved(Config(**FIELDS, runner="cluster", nodes=2, sync=sync)), Engine("a", "b")
    monkeypatch.setattr(coordinator, "Engine", lambda config: engine)
    found = Coordinator(config, Spec((4,), 1, "float32", 2), (), None)
    found._shards = Shards(engine, dataclasses.asdict(config), SHARD, 2, Own())
    untrained = types.SimpleNamespace(arrays=UNTRAINED)
    untrained.absorb = lambda said: setattr(untrained, "arrays", said[0]) or []
    found._model, found._rate = types.SimpleNamespace(version=0, untrained=untrained), lambda: 0.1
    found._fleet = Fleet(found, found._shards.parts)
    return found, engine.actors[1][1]


def after(steps):
    """The weights after steps, each with some gradients."""
    one = Reducer(VERSION, dataclasses.asdict(Config(**FIELDS)), SHARD, Own())
    return [one.apply(0.1, [], one.gather(0, *gradients))[1] for gradients in steps][-1]


@pytest.mark.parametrize("dies", ["", "add", "gather"])
@pytest.mark.parametrize(("sync", "steps"), [("on", [GRADIENTS]), ("off", [GRADIENTS[:1], GRADIENTS[1:]])])
def test_without_rounds_each_gradient_has_an_update_of_its_own(tmp_path, monkeypatch, sync, steps, dies):
    """Also those that arrive together, and if a reducer dies between them."""
    found, actor = make(tmp_path, monkeypatch, sync)
    found._fleet.disturb = lambda: actor.dies.add(dies)
    found.run(lambda: None)
    whole, line = found._shards.whole(), found.snapshot()
    np.testing.assert_allclose(whole.weights, after(steps), rtol=1e-6)
    assert whole.updates == found._model.version == line["updates"] == len(steps)
    assert line["contributions"] == 2 / len(steps) and line["late"] == line["refused"] == 0
    assert line["batch_train"] == 160 / len(steps) and line["replaced"] == bool(dies)


def fail(actor, error, times):
    """Lets a reducer raise an error in its next calls of `gather`."""
    gather, errors = actor.object.gather, [error] * times

    def failing(*args):
        if errors:
            raise errors.pop()
        return gather(*args)

    actor.object.gather = failing
    return errors


@pytest.mark.parametrize("times", [1, 2])
def test_an_error_that_a_reducer_repeats_ends_the_run(tmp_path, monkeypatch, times):
    """What is saved then is what was there before. One that it does not repeat costs no gradient."""
    found, actor = make(tmp_path, monkeypatch, "on")
    fail(actor, MemoryError("no memory\nat all"), times)
    message = r"a reducer failed twice: MemoryError\('no memory\\nat all'\); see Ray's logs"
    with pytest.raises(AgentFailure, match=message) if times == 2 else contextlib.nullcontext():
        found.run(lambda: None)
    assert found._model.version == 2 - times and (found._model.untrained.arrays is UNTRAINED) == (times == 2)
    wanted = SHARD.weights if times == 2 else after([GRADIENTS])
    np.testing.assert_allclose(found._shards.whole().weights, wanted, rtol=1e-6)


def test_a_gradient_that_is_lost_with_its_machine_costs_one_round(tmp_path, monkeypatch):
    """Ray counts it as there. A reducer fails with the error of Ray that tells of the loss."""
    found, _ = make(tmp_path, monkeypatch, "off")
    found._fleet._members[0].slices[1] = Ref(error=RayError("lost"))
    found.run(lambda: None)
    np.testing.assert_allclose(found._shards.whole().weights, after([GRADIENTS[1:]]), rtol=1e-6)
    assert found._model.version == found.snapshot()["updates"] == 1


def test_gradients_that_are_lost_again_and_again_end_the_run(tmp_path, monkeypatch, capsys):
    """Such as by a full disk of a reducer's machine. Nothing would be learned."""
    found, actor = make(tmp_path, monkeypatch, "on")
    fail(actor, RayError("Local disk is full\nmore"), 1000)
    members = found._fleet._members

    def wait(seconds):
        for member in members:
            member.version = found._model.version
            yield member

    found._fleet.wait = wait
    with pytest.raises(AgentFailure, match="Local disk is full, 10 times in a row; see Ray's logs"):
        found.run(lambda: None)
    assert capsys.readouterr().err.count("the round has no update") == 9


@pytest.mark.parametrize("after_it", [False, True])
def test_an_error_of_a_reducer_in_its_step_is_not_repeated_by_the_others(tmp_path, monkeypatch, capsys, after_it):
    """They have taken the step. Its own weights stay, and another takes its place."""
    found, actor = make(tmp_path, monkeypatch, "on")
    apply = actor.object.apply

    def failing(*args):
        if after_it:
            apply(*args)
        raise MemoryError("no memory")

    actor.object.apply = failing
    found.run(lambda: None)
    whole = found._shards.whole()
    np.testing.assert_allclose(whole.weights, np.hstack([after([GRADIENTS])[:, :2], SHARD.weights[:, 2:]]), rtol=1e-6)
    assert whole.updates == found._model.version == 1 and found._shards.replaced == 1
    assert "a reducer failed in a step (no memory); another takes its place" in capsys.readouterr().err


@pytest.mark.parametrize(("gone", "told"), [(False, 1), (True, 0)])
def test_reducers_that_keep_dying_do_not_keep_the_run_from_ending(tmp_path, monkeypatch, capsys, gone, told):
    """The round is given up, also if no machine is left for them. Nothing changes."""
    found, actor = make(tmp_path, monkeypatch, "on")
    engine, born = found._engine, found._engine.actor

    def deadly(*args, **options):
        engine.hosts = [] if gone else engine.hosts
        dying = born(*args, **options)
        dying.dies.add("gather")
        return dying

    engine.actor = deadly
    found._fleet.disturb = lambda: actor.dies.add("gather")
    found.run(lambda: None)
    assert found.snapshot()["updates"] == found._model.version == 0 and found._model.untrained.arrays is UNTRAINED
    assert capsys.readouterr().err.count("reducers keep failing") == told


def test_a_step_that_is_not_finite_changes_nothing(tmp_path, monkeypatch):
    """No reducer has rescaled the value layer, so that the moments stay, too."""
    found, _ = make(tmp_path, monkeypatch, "on")
    found._fleet._members[0].slices[0].value[0] = np.inf
    found.run(lambda: None)
    line = found.snapshot()
    assert (line["updates"], line["refused"]) == (0, 2) and found._model.untrained.arrays is UNTRAINED
    whole = found._shards.whole()
    assert whole.updates == 0
    np.testing.assert_array_equal(whole.weights, SHARD.weights)


@pytest.mark.parametrize(("sync", "late"), [("on", True), ("off", False)])
def test_agent_steps_of_gradients_that_come_late_are_not_trained_on(tmp_path, monkeypatch, sync, late):
    """They are agent steps all the same."""
    found, _ = make(tmp_path, monkeypatch, sync)
    metrics = RunMetrics()
    metrics.acted(80)
    metrics.trained(80, np.zeros(1), {})
    member = found._fleet._members[1]
    member.version, member.answer = -1, member.answer._replace(counted=metrics.take())
    found.run(lambda: None)
    line = found.snapshot()
    assert (line["step"], line["trained"], line["late"]) == (80, 0 if late else 80, int(late))
