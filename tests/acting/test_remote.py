"""An agent process that has not been told what to do yet. See test_pool.py for those that step environments."""

from __future__ import annotations

import psutil
import pytest

from gunreal.acting import pool
from gunreal.acting.agent import Outbox
from gunreal.acting.pool import Remote
from gunreal.config.schema import Config
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec

LAYOUT = Layout(
    Spec((3,), 1, "float32", 3, t_max=4), agents=2, groups=2, replay_size=40, extra={}, slots=2, mailboxes={}
)


@pytest.fixture
def remote(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    return Remote(0, Config(), LAYOUT, Outbox((), 1, 1))


def test_its_libraries_use_one_thread(remote):
    environment = psutil.Process(remote.popen.pid).environ()
    assert (environment["OMP_NUM_THREADS"], environment["OPENBLAS_NUM_THREADS"]) == ("1", "1")
    remote.close()


def test_the_time_to_leave_begins_when_it_is_told_to(remote, monkeypatch):
    """Several are told at once, and closing them takes no longer than closing one."""
    now, slept = 100.0, []
    monkeypatch.setattr(pool.time, "monotonic", lambda: now)
    monkeypatch.setattr(pool.time, "sleep", slept.append)
    monkeypatch.setattr(remote, "exited", lambda: len(slept) > 3)
    remote.leave()
    now += pool._LEAVING
    remote.close()
    assert not slept
