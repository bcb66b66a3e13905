from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from ray_standin import Actor, Engine, RayError, Ref

from gunreal.cluster import reducer, shards
from gunreal.cluster.reducer import Own, Reducer, Refused, Rescaling, Shard
from gunreal.config.schema import Config
from gunreal.config.version import VERSION
from gunreal.learning.normalizer import Moments

CONFIG = Config(optimizer="adam", reduction="mean", max_grad_norm=0.5)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(2, 11)).astype(np.float32)  # with a moving average
OWN = Own([0.25], [slice(9, 11)], [(slice(9, 11), 0.5)])
GRADIENTS = [RNG.normal(size=11).astype(np.float32) for _ in range(3)]
RESCALINGS = [Rescaling(slice(2, 7), slice(7, 8), Moments(2.0, 1.0, 5.0), Moments(0.0, 4.0, 6.0), 0.1)]


def start(count=3, hosts=("a", "b"), kind=Engine):
    engine = kind(*hosts)
    return engine, shards.Shards(engine, dataclasses.asdict(CONFIG), whole(), count, OWN)


def whole():
    return Shard(WEIGHTS, [np.zeros(11, np.float32), np.zeros(11, np.float32)], 0)


def refs(made, gradients=GRADIENTS):
    return [[Ref(gradient[part]) for part in made.parts] for gradient in gradients]


def step(made, gradients, added=False):
    return made.finish(made.begin(gradients, 0.1, RESCALINGS, added))


def now(made):
    return np.concatenate([ref.value for ref in made.weights], axis=1)


def expected():
    """The step of one reducer that has all weights."""
    one = Reducer(VERSION, dataclasses.asdict(CONFIG), whole(), OWN)
    return one.apply(0.1, RESCALINGS, one.gather(0, *GRADIENTS))[1]


@pytest.mark.parametrize("added", [False, True])
def test_three_reducers_take_the_step_of_one(added):
    engine, made = start()
    assert [host for host, _ in engine.actors] == ["a", "b", "a"]
    gradients = refs(made)
    if added:
        made.add(gradients[:2])
        made.add(gradients[2:])
    norm = step(made, gradients, added)
    assert norm == pytest.approx(np.linalg.norm(sum(GRADIENTS)[:9] / 3), rel=1e-6)
    np.testing.assert_allclose(now(made), expected(), rtol=1e-6)
    assert made.whole().updates == 1
    if added:  # each round has its own gradients
        made.add(gradients)
    assert step(made, gradients, added) == norm


def test_a_reducer_that_does_not_answer_is_ended():
    """It may still hold memory, and it must not take a later step. Its machine may be lost without Ray knowing it."""
    engine, made = start(1)
    engine.actors[0][1].hangs = True
    assert step(made, refs(made)) is None and engine.actors[0][1].dead
    assert [host for host, _ in engine.actors] == ["a", "b"]
    step(made, refs(made))
    np.testing.assert_allclose(now(made), expected(), rtol=1e-6)


class Mixed(Engine):
    """The machine b has another version. An actor whose constructor fails is dead."""

    def actor(self, kind, *args, machine):
        with pytest.MonkeyPatch.context() as other:
            other.setattr(reducer, "VERSION", "0.0.9" if machine.host == "b" else VERSION)
            try:
                return super().actor(kind, *args, machine=machine)
            except Refused:
                self.actors.append((machine.host, Actor(dict, ())))
        self.actors[-1][1].dead = True
        return self.actors[-1][1]


@pytest.mark.parametrize("died", [[], [0], [1], [0, 0], [1, 1, 0]])
def test_reducers_that_move_together_find_that_machine(died):
    """Whatever has moved before."""
    _, made = start(2, kind=Mixed)
    for places in ([], *([place] for place in died), [0, 1]):
        for place in places:
            made._reducers[place].dead = True
        found = [step(made, refs(made)) for _ in range(3)]  # each of the two machines may be tried
        assert found[-1] is not None


def rescaled(weights, times=1):
    """The weights after some rounds with gradients that are zero."""
    weights = weights.copy()
    for _ in range(times):
        weights[0, 2:8] *= 0.5
        weights[0, 7] += 1.0
    return weights


def test_a_reducer_that_dies_in_the_step_misses_its_gradient_only():
    """The moments of the returns change with every step, so that its part of the value layer has to fit them."""
    engine, made = start()
    engine.actors[1][1].dies = {"apply"}
    assert step(made, refs(made)) is not None
    missed = made.parts[1]
    wanted = expected()
    wanted[:, missed] = rescaled(WEIGHTS)[:, missed]
    np.testing.assert_allclose(now(made), wanted, rtol=1e-6)
    np.testing.assert_array_equal(engine.actors[3][1].object.shard().weights, now(made)[:, missed])
    assert made.whole().updates == 1 and made.replaced == 1


@pytest.mark.parametrize("ending", ["replaced", "saved", "saved without the head"])
def test_weights_that_are_lost_with_their_machine_are_rescaled_like_the_others(monkeypatch, ending):
    """Those of the last copy fit the moments of that time."""
    monkeypatch.setattr(shards, "_BACKUP", 0.0)
    engine, made = start()
    nothing = [np.zeros(11, np.float32)]
    assert step(made, refs(made, nothing)) == step(made, refs(made, nothing)) == 0.0
    monkeypatch.setattr(shards, "_BACKUP", 1e9)
    for gradient in (np.full(11, np.inf, np.float32), *nothing, *nothing):
        step(made, refs(made, [gradient]))
    engine.actors[1][1].dead, made.weights[1] = True, Ref(error=RayError("lost"))
    if ending == "replaced":
        assert step(made, refs(made, nothing)) is None and made.replaced == 1
        np.testing.assert_allclose(now(made)[0], rescaled(WEIGHTS, 4)[0], rtol=1e-6)
    engine.is_lost = ending == "saved without the head"
    for _ in range(2):
        np.testing.assert_allclose(made.whole().weights[0], rescaled(WEIGHTS, 4)[0], rtol=1e-6)


def test_a_successor_has_the_weights_of_the_last_round_and_copied_averages(monkeypatch):
    monkeypatch.setattr(shards, "_BACKUP", 0.0)
    engine, made = start(1)
    for _ in range(2):
        step(made, refs(made))
    averages = [slot.copy() for slot in engine.actors[0][1].object.shard().averages]
    step(made, refs(made))  # brings the copy of before
    monkeypatch.setattr(shards, "_BACKUP", 1e9)
    weights = now(made)
    engine.actors[0][1].dead = True
    assert step(made, refs(made)) is None
    after = made.whole()
    np.testing.assert_array_equal(after.weights, weights)
    np.testing.assert_array_equal(after.averages, averages)
    assert after.updates == 3


def test_a_copy_may_take_longer_than_the_time_between_copies(monkeypatch):
    """Ray begins to fetch it from another machine when it is first waited for."""
    monkeypatch.setattr(shards, "_BACKUP", 0.0)
    engine, made = start(1)
    asked = []

    def wait(refs, num_returns, timeout):
        begun = all(any(ref is other for other in asked) for ref in refs)
        asked.extend(refs)
        return (refs, []) if begun else ([], refs)

    monkeypatch.setattr(engine.ray, "wait", wait)
    step(made, refs(made))
    averages = engine.actors[0][1].object.shard().averages[0].copy()
    for _ in range(2):
        step(made, refs(made))
    engine.actors[0][1].dead = True
    np.testing.assert_array_equal(made.whole().averages[0], averages)


def test_a_copy_that_is_lost_does_not_undo_the_step(monkeypatch):
    monkeypatch.setattr(shards, "_BACKUP", 0.0)
    _, made = start(2)
    step(made, refs(made))
    made._copies[1] = Ref(error=RayError("lost"))
    for _ in range(3):
        assert step(made, refs(made)) is not None
    assert made.whole().updates == 4 and made._kept[1].updates == 3


def test_neither_a_step_nor_a_checkpoint_waits_for_a_machine(monkeypatch):
    """Without one, the reducers cannot be replaced. The run can still be saved and stopped."""
    engine, made = start(2)
    step(made, refs(made))
    weights = now(made)
    with monkeypatch.context() as lost:  # after the reducer has answered, and before the answer has been fetched
        lost.setattr(engine.actors[1][1].object, "shard", lambda: 1 / 0)
        np.testing.assert_array_equal(made.whole().weights, weights)
    engine.actors[1][1].dead = True
    monkeypatch.setattr(engine, "hosts", [])
    monkeypatch.setattr(shards.time, "sleep", lambda seconds: pytest.fail("it waits"))
    np.testing.assert_array_equal(made.whole().weights, weights)
    assert step(made, refs(made)) is None and made.replaced == 0
    np.testing.assert_array_equal(made.whole().weights, weights)
    engine.hosts = ["c"]
    assert step(made, refs(made)) is None and made.replaced == 1
    assert step(made, refs(made)) is not None
