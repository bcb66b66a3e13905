"""A fleet of nodes that start at once, and a clock that goes on when a test says so."""

from __future__ import annotations

import pytest
from ray_standin import Engine

from gunreal.cluster import fleet
from gunreal.cluster.fleet import Fleet
from gunreal.cluster.node import Description
from gunreal.config.schema import Config
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
