from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gunreal.experience import waits
from gunreal.experience.waits import BINS, Reader, Waited, Waits


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(waits.time, "monotonic", lambda: now.seconds)
    return now


def empty(groups: int = 2) -> Waits:
    return Waits(Waited(np.zeros(groups), np.zeros((groups, BINS), np.int64)))


def wait(of: Waits, clock, seconds: float, group: int = 0) -> None:
    of.begin(group)
    clock.seconds += seconds
    of.end(group)


def test_each_group_is_timed_alone(clock):
    found = empty()
    found.begin(0)
    clock.seconds += 0.25
    found.begin(1)
    clock.seconds += 0.5
    found.end(1)
    clock.seconds += 0.125
    found.end(0)
    found.end(0)  # no request: after a serial run was resumed, another process has asked
    assert found.total().seconds.tolist() == [0.875, 0.5]
    assert found.total().counts.sum(axis=1).tolist() == [1, 1]
    assert found.total().mean_ms() == 687.5


def test_percentiles_to_within_5_percent(clock):
    seconds = np.random.default_rng(0).lognormal(-4, 1.5, 500)
    found = empty()
    for i, each in enumerate(seconds):
        wait(found, clock, each, group=i % 2)
    for percent in (5, 50, 95, 100):
        exact = 1e3 * np.percentile(seconds, percent, method="inverted_cdf")
        assert found.total().percentile_ms(percent) == pytest.approx(exact, rel=0.05)
    assert found.total().mean_ms() == pytest.approx(1e3 * seconds.mean())


def test_the_shortest_and_the_longest_have_a_bin(clock):
    found = empty()
    for seconds in (0.0, 1e-9, 1e7):
        wait(found, clock, seconds)
    assert found.total().counts[0, [0, -1]].tolist() == [2, 1]


def test_a_copy_stays_as_it_is(clock):
    found = empty()
    before = found.total()
    wait(found, clock, 1.0)
    assert before.mean_ms() is before.percentile_ms(50) is None and found.total().mean_ms() == 1000


def test_a_reader_reports_new_waits_while_processes_start_and_end(clock):
    reader, (a, b, c) = Reader(), (empty() for _ in range(3))
    assert reader.read({}).mean_ms() is None
    wait(a, clock, 1.0)
    wait(b, clock, 3.0)
    assert reader.read({0: a.total(), 1: b.total()}).mean_ms() == 2000
    assert reader.read({0: a.total(), 1: b.total()}).mean_ms() is None
    wait(a, clock, 0.5)
    wait(b, clock, 9.0)  # and then its process dies
    wait(c, clock, 0.25)
    found = reader.read({0: a.total(), 2: c.total()})
    assert found.mean_ms() == 375 and found.seconds.tolist() == [0.5, 0, 0.25, 0] and found.counts.shape == (4, BINS)
    wait(c, clock, 0.125)
    assert reader.read({2: c.total()}).mean_ms() == 125
