"""A fleet of nodes that start at once, and a clock that goes on when a test says so."""

from __future__ import annotations

import re

import pytest
from ray_standin import Engine, Ref

from gunreal.acting.pool import TaskFailure
from gunreal.cluster import fleet
from gunreal.cluster.fleet import Fleet
from gunreal.cluster.node import Description
from gunreal.cluster.reducer import Refused
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec

SPEC = Spec((4,), 1, "float32", 2)


class Quick:
    """A node that starts at once. `errors` holds what the next ones fail with."""

    errors: list[Exception] = []  # noqa: RUF012  one list for all
    started: list[int] = []  # noqa: RUF012
    drawn: list[int] = []  # noqa: RUF012
    sharing: list[int] = []  # noqa: RUF012

    def start(self, told):
        self.started.append(told.fields["seed"])
        self.drawn.append(told.seed)
        self.sharing.append(told.sharing)
        if self.errors:
            raise self.errors.pop(0)
        return Description({}, {}, 1)

    def gauges(self):
        return {"agents": 2}, {}

    def stop(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    """The time, in a list."""
    now = [100.0]
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(fleet.time, "sleep", lambda seconds: None)
    Quick.errors, Quick.started, Quick.drawn, Quick.sharing = [], [], [], []
    return now


def look(found, clock, seconds=1):
    """What the coordinator does, for some seconds."""
    for _ in range(seconds):
        clock[0] += 1
        found.look()
        for member in list(found.wait(0)):
            member.description = found.result(member)


def make(*hosts, **fields):
    engine = Engine(*hosts)
    return engine, Fleet(engine, Config(runner="cluster", **fields), SPEC, 0, Quick)


@pytest.mark.parametrize(("hosts", "address"), [("a", ""), ("ab", "auto")])
def test_nodes_are_spread_over_the_machines(clock, hosts, address):
    """And told how many share theirs."""
    _, found = make(*hosts, nodes=4, memory_limit=2**31, address=address)
    look(found, clock)
    assert [member.machine.host for member in found.ready()] == list(hosts * 4)[:4]
    assert [member.slot for member in found.ready()] == [0, 1, 2, 3]
    assert len(set(Quick.started)) == 4 and found.serial == 4 and Quick.sharing == [4 // len(hosts)] * 4


def test_a_lost_node_is_replaced_by_one_with_another_seed(clock, capsys):
    """All are told that of the run, too."""
    _, found = make("a", nodes=2, seed=7)
    look(found, clock)
    found.ready()[1].actor.dead = True
    look(found, clock)
    assert [member.slot for member in found.ready()] == [0]
    for _ in range(3):  # it has computed nothing, so that its successor starts with a delay
        look(found, clock)
    assert [member.slot for member in found.ready()] == [0, 1]
    assert found.replaced == 1 and len(set(Quick.started)) == 3 and Quick.drawn == [7] * 3
    error = capsys.readouterr().err
    assert "node 1 on a is lost" in error and "in a row" not in error
    found.ready()[1].actor.dead = True
    look(found, clock)
    assert "it failed 2 times in a row, so check the disk" in capsys.readouterr().err


def test_a_node_waits_for_a_gpu(clock):
    """Its machine is gone, and the node of the other one has its whole GPU. Ray could never start it there."""
    engine, found = make("a", "b", nodes=2, address="auto")
    engine.gpus = 1.0
    look(found, clock)
    engine.hosts = ["a"]
    found.lost(found.members[1], RuntimeError("the machine is gone"))
    look(found, clock, 100)
    assert list(found.members) == [0]
    engine.hosts = ["a", "b"]
    look(found, clock)
    assert found.members[1].machine.host == "b"


@pytest.mark.parametrize("why", [RuntimeError("the machine is gone"), Refused("it has gunreal 0.1")])
def test_nodes_never_have_more_than_the_memory_of_their_machine(clock, why):
    """A node waits for a machine if those of the other machines have all of their memory."""
    engine, found = make("a", "b", nodes=3, address="auto")
    look(found, clock)
    assert Quick.sharing == [2] * 3
    engine.hosts.remove("a")
    for member in (found.members[0], found.members[2]):
        found.lost(member, why)
        assert member.actor.dead
    look(found, clock, 100)
    assert [(member.machine.host, member.sharing) for member in found.ready()] == [("b", 3), ("b", 2)]
    engine.hosts.append("c")
    look(found, clock)
    assert [member.machine.host for member in found.ready()] == ["b", "b", "c"]


@pytest.mark.parametrize(
    ("gpus", "nodes", "share"),
    [(0, 2, 0), (1, 1, 1), (1, 3, 1 / 3), (2, 3, 1 / 2), (2, 5, 1 / 3), (3, 4, 1 / 2), (4, 2, 1)],
)
def test_nodes_share_the_gpus_of_their_machine(clock, gpus, nodes, share):
    """Ray takes each share from a single GPU."""
    engine, found = make("a", nodes=nodes)
    engine.gpus = gpus
    look(found, clock)
    assert [member.share for member in found.members.values()] == [share] * nodes


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        (1, Refused("it has gunreal 0.1")),  # no other machine can take part
        (2, TaskFailure("task 'bad': targets() failed: IndexError: here (bad.py:3)")),
    ],
)
def test_an_error_that_another_node_would_repeat_ends_the_run(clock, nodes, error):
    _, found = make("a", nodes=nodes, address="auto")
    Quick.errors = [error]
    with pytest.raises(ConfigError if nodes == 1 else TaskFailure, match=f"^{re.escape(str(error))}$"):
        look(found, clock)


def test_nodes_that_keep_failing_are_tried_later_and_end_the_run(clock):
    """Ray describes the death of a process in many lines, and guesses at causes."""
    _, found = make("a", nodes=2)
    text = "The actor died.\n\tclass_name: Node\n\tpid: 7 Some common causes include: (1) the OOM killer"
    Quick.errors = [ValueError(text)] * 20
    with pytest.raises(AgentFailure, match="failed 3 times in a row: The actor died. pid: 7$"):
        for _ in range(20):
            look(found, clock)
    assert len(Quick.started) < 8  # seconds lie between the attempts


def test_what_was_sent_with_lost_weights_is_forgotten(clock):
    _, found = make("a", nodes=2)
    look(found, clock)
    for member, version in zip(found.ready(), (6, 7), strict=True):
        member.pending, member.version = member.actor.gauges.remote(), version
    found.recall(7)
    assert [member.pending is None for member in found.ready()] == [False, True]


def test_losses_of_nodes_that_have_computed_gradients_are_not_counted(clock, capsys):
    """Such nodes have worked. Their successors start without a delay."""
    _, found = make("a", nodes=1)
    for _ in range(6):
        look(found, clock)
        (member,) = found.ready()
        member.answers, member.actor.dead = 1, True
        look(found, clock)
    assert "in a row" not in capsys.readouterr().err and len(Quick.started) == 6


def test_a_node_that_keeps_failing_does_not_end_the_run_of_another_one(clock, capsys):
    _, found = make("a", nodes=2)
    look(found, clock)
    Quick.errors = [ValueError("broken")] * 20
    found.ready()[1].actor.dead = True
    look(found, clock, 100)
    assert [member.slot for member in found.ready()] == [0]
    assert "it failed 5 times in a row" in capsys.readouterr().err


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


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_whose_network_is_cut_is_not_replaced(clock, capsys, answers):
    """It is left out until it answers. After the network is back, it has as long as the cut, and the timeout, for that,
    because TCP's attempts have become rare."""
    engine, found = make("a", "b", nodes=2, node_timeout=5.0)
    look(found, clock, 2)
    cut = found.ready()[1]
    cut.life, cut.actor.hangs, cut.answers = Ref(ready=False), True, 1
    engine.cut = {"b"}
    look(found, clock, 6)
    engine.cut = set()
    look(found, clock, 10)  # the cut and the timeout are 11 s
    assert [member.slot for member in found.ready()] == [0] and cut in found.members.values()
    cut.life.ready = answers
    look(found, clock, 2)
    assert (cut in found.ready()) == (cut in found.members.values()) == answers
    look(found, clock)
    assert found.replaced == (not answers) and capsys.readouterr().err.count("node 1 on b is away") == 1


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
