"""When a node that is silent is replaced."""

from __future__ import annotations

import fleets
from fleets import look, make
from ray_standin import Ref

from gunreal.cluster import fleet

clock = fleets.clock  # pytest finds fixtures among a module's names


def test_a_node_without_a_sign_of_life_is_replaced(clock):
    _, found = make("a", nodes=2, node_timeout=5.0)
    look(found, clock)
    look(found, clock)
    found.ready()[0].actor.hangs, found.ready()[0].answers = True, 1
    look(found, clock, 4)
    assert [member.slot for member in found.ready()] == [0, 1]
    look(found, clock, 2)
    assert [member.slot for member in found.ready()] == [1]


def test_an_answer_from_before_a_sign_of_life_does_not_count(clock, monkeypatch):
    _, found = make("a", nodes=1)
    look(found, clock)
    look(found, clock)
    (member,) = found.ready()
    monkeypatch.setattr(fleet, "is_stopped", lambda pid: True)
    member.life, member.actor.hangs = Ref(ready=False), True
    monkeypatch.setattr(found._engine, "call", lambda *args, machine: Ref(True, ready=False))
    look(found, clock, 4)
    answer, member.life.ready, member.actor.hangs = member.stopped, True, False
    look(found, clock)
    answer.ready = True
    assert member.stopped is None and found.ready() == [member]


def make_cut(clock):
    """Two nodes, and the second one, whose network is cut."""
    engine, found = make("a", "b", nodes=2, node_timeout=5.0)
    look(found, clock, 2)
    cut = found.ready()[1]
    cut.life, cut.actor.hangs, cut.answers = Ref(ready=False), True, 1
    engine.cut = {"b"}
    return engine, found, cut


def test_a_node_whose_network_is_cut_is_not_replaced(clock, capsys):
    """It is left out until it answers, for which it has time after the network is back."""
    engine, found, cut = make_cut(clock)
    look(found, clock, 20)
    assert [member.slot for member in found.ready()] == [0]
    engine.cut = set()
    look(found, clock, 4)
    assert [member.slot for member in found.ready()] == [0]
    cut.life.ready = True
    look(found, clock)
    assert found.ready()[1] is cut and found.replaced == 0
    assert capsys.readouterr().err.count("node 1 on b is away") == 1


def test_a_node_that_stays_silent_after_its_network_is_back_is_replaced(clock):
    """It has as long as the network was cut, and the timeout, because TCP's attempts have become rare."""
    engine, found, cut = make_cut(clock)
    look(found, clock, 6)
    engine.cut = set()
    look(found, clock, 10)  # the cut and the timeout are 11 s
    assert cut in found.members.values()
    look(found, clock, 2)
    assert cut not in found.members.values()


def test_a_long_start_is_not_held_against_a_node(clock):
    """It answers nothing while it loads a framework, nor while it compiles before its first gradient."""
    _, found = make("a", nodes=1, node_timeout=5.0)
    clock[0] += 1
    found.look()
    (member,) = found.members.values()
    member.life = Ref(ready=False)
    for _ in range(100):
        clock[0] += 1
        found.look()
    member.description = found.result(member)
    look(found, clock, 50)
    assert found.ready() == [member]
    member.answers = 1
    look(found, clock)
    assert found.ready() == []


def test_a_pause_of_the_coordinator_is_no_silence_of_its_nodes(clock):
    """The answers arrive a moment after it goes on."""
    _, found = make("a", nodes=1, node_timeout=5.0)
    look(found, clock, 2)
    (member,) = found.ready()
    member.life, member.answers = Ref(ready=False), 1
    clock[0] += 100
    look(found, clock)
    assert found.ready() == [member] and not member.is_away
    look(found, clock, 5)
    assert found.ready() == []
