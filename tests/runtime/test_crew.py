from __future__ import annotations

import os
import queue
import threading
import weakref

import pytest
from training import wait_until

from gunreal.runtime import crew as crew_module
from gunreal.runtime.crew import Crew


def alive(name):
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-"))


class Jobs:
    """Work for a crew that fails with each item that says so. It remembers what was done."""

    def __init__(self, *items):
        self.waiting, self.done, self.errors = queue.Queue(), [], []
        for item in items:
            self.waiting.put(item)

    def fetch(self, timeout):
        try:
            item = self.waiting.get(timeout=min(timeout, 0.01))
        except queue.Empty:
            return None
        if item == ["lost"]:
            raise OSError("no work")
        return item

    def work(self, item):
        if item == ["bad"]:
            raise ZeroDivisionError("bad work")
        self.done.append(item)

    def crew(self, name, size, **options):
        crew = Crew(name, self.fetch, self.work, self.errors.append, **options)
        crew.resize(size)
        return crew


def test_threads_do_the_work_and_stop():
    jobs = Jobs(*([number] for number in range(20)))
    crew = jobs.crew("t1", 0)
    assert len(crew) == 0 and alive("t1") == []
    crew.resize(3)
    assert len(crew) == 3 and alive("t1") == ["t1-0", "t1-1", "t1-2"]
    wait_until(lambda: len(jobs.done) == 20)
    crew.resize(1)  # ends the newest
    wait_until(lambda: alive("t1") == ["t1-0"])
    crew.resize(2)
    assert alive("t1") == ["t1-0", "t1-1"]
    crew.stop()
    assert sorted(jobs.done) == [[number] for number in range(20)]
    assert alive("t1") == [] and len(crew) == 0 and not jobs.errors


def test_finished_work_is_released():
    class Item(list):
        """As a list, but it can be referred to weakly."""

    jobs = Jobs(Item([1]))
    jobs.work = lambda item: jobs.done.append(weakref.ref(item))
    crew = jobs.crew("t2", 1)
    wait_until(lambda: jobs.done and jobs.done[0]() is None)
    crew.stop()


def test_threads_give_way_by_their_nice_value_and_no_others_do():
    before, jobs = os.getpriority(os.PRIO_PROCESS, 0), Jobs([1])
    jobs.work = lambda _: jobs.done.append(os.getpriority(os.PRIO_PROCESS, 0))
    crew = jobs.crew("t3", 1, nice=3)
    wait_until(lambda: jobs.done)
    crew.stop()
    assert jobs.done == [min(19, before + 3)] and os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_failure_is_reported_and_the_others_go_on():
    jobs = Jobs(["bad"])
    crew = jobs.crew("t4", 2)
    wait_until(lambda: len(alive("t4")) == 1)
    jobs.waiting.put(["good"])
    wait_until(lambda: jobs.done)
    assert [str(error) for error in jobs.errors] == ["bad work"]
    crew.resize(2)  # the failed one's place is free
    assert len(alive("t4")) == 2
    crew.stop()


def test_at_once_limits_the_threads_with_work():
    """Of six threads two hold work. Those that fail or find nothing give their place back."""
    jobs, go_on, holding, most = Jobs(["bad"], ["bad"], [], ["lost"], [3], [4], [5]), threading.Semaphore(0), [], []
    work = jobs.work

    def waits(item):
        holding.append(item)
        most.append(len(holding))
        assert go_on.acquire(timeout=60)
        holding.remove(item)
        work(item)

    jobs.work = waits
    crew = jobs.crew("t5", 6, at_once=2)
    wait_until(lambda: len(holding) == 2)
    threading.Event().wait(0.2)
    assert (len(holding), jobs.waiting.qsize()) == (2, 5)
    go_on.release(5)
    wait_until(lambda: len(jobs.done) + len(jobs.errors) == 6)
    crew.stop()
    assert sorted(str(error) for error in jobs.errors) == ["bad work", "bad work", "no work"]
    assert sorted(jobs.done) == [[3], [4], [5]] and max(most) == 2


def test_idle_share(monkeypatch):
    """Waiting takes 3 of every 4 seconds."""
    now, jobs = [100.0], Jobs(["a"], ["b"])
    monkeypatch.setattr(crew_module.time, "monotonic", lambda: now[0])
    fetch = jobs.fetch

    def slow(timeout):
        item = fetch(timeout)
        now[0] += 3 if item else 0
        return item

    def work(item):
        now[0] += 1
        jobs.done.append(item)

    jobs.fetch, jobs.work = slow, work
    crew = jobs.crew("t6", 1)
    wait_until(lambda: len(jobs.done) == 2 or jobs.errors)
    crew.stop()
    assert crew.idle_share() == pytest.approx(6 / 8)
    now[0] += 5
    assert crew.idle_share() == 0
