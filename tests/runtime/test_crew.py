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
    """A source of work that remembers who did what."""

    def __init__(self):
        self.waiting: queue.Queue = queue.Queue()
        self.done: list = []
        self.errors: list[BaseException] = []

    def fetch(self, timeout):
        try:
            return self.waiting.get(timeout=min(timeout, 0.01))
        except queue.Empty:
            return None

    def work(self, item):
        if item == ["bad"]:
            raise ZeroDivisionError("bad work")
        self.done.append((threading.current_thread().name, item))


def test_threads_do_the_work_and_stop():
    jobs = Jobs()
    crew = Crew("t1", jobs.fetch, jobs.work, jobs.errors.append)
    assert len(crew) == 0 and alive("t1") == []
    crew.resize(3)
    assert len(crew) == 3 and alive("t1") == ["t1-0", "t1-1", "t1-2"]
    for number in range(20):
        jobs.waiting.put([number])
    wait_until(lambda: len(jobs.done) == 20)
    crew.stop()
    assert sorted(item[0] for _, item in jobs.done) == list(range(20))
    assert alive("t1") == [] and len(crew) == 0 and not jobs.errors


def test_finished_work_is_released():
    class Item(list):
        """As a list, but it can be referred to weakly."""

    jobs = Jobs()
    crew = Crew("t6", jobs.fetch, lambda item: jobs.done.append(weakref.ref(item)), jobs.errors.append)
    jobs.waiting.put(Item([1]))
    crew.resize(1)
    wait_until(lambda: jobs.done and jobs.done[0]() is None)
    crew.stop()


def test_threads_give_way_by_their_nice_value_and_no_others_do():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    values = []
    crew = Crew("t2", lambda timeout: [1], lambda _: values.append(os.getpriority(os.PRIO_PROCESS, 0)), print, nice=3)
    crew.resize(1)
    wait_until(lambda: values)
    crew.stop()
    assert set(values) == {min(19, before + 3)} and os.getpriority(os.PRIO_PROCESS, 0) == before


def test_resize_ends_the_newest_and_starts_new_ones():
    jobs = Jobs()
    crew = Crew("t3", jobs.fetch, jobs.work, jobs.errors.append)
    crew.resize(4)
    crew.resize(1)
    wait_until(lambda: alive("t3") == ["t3-0"])
    crew.resize(2)
    assert alive("t3") == ["t3-0", "t3-1"]
    crew.stop()


def test_a_failure_is_reported_and_the_others_go_on():
    jobs = Jobs()
    crew = Crew("t4", jobs.fetch, jobs.work, jobs.errors.append)
    crew.resize(2)
    jobs.waiting.put(["bad"])
    wait_until(lambda: len(alive("t4")) == 1)
    jobs.waiting.put(["good"])
    wait_until(lambda: jobs.done)
    assert [str(error) for error in jobs.errors] == ["bad work"]
    crew.resize(2)  # the failed one's place is free
    assert len(alive("t4")) == 2
    crew.stop()


def test_at_once_limits_the_threads_with_work():
    """Of four threads two hold work, the others wait; work that fails gives its place back."""
    jobs, go_on, holding, most = Jobs(), threading.Semaphore(0), [], []

    def work(item):
        holding.append(item)
        most.append(len(holding))
        assert go_on.acquire(timeout=60)
        holding.remove(item)
        jobs.work(item)

    crew = Crew("t7", jobs.fetch, work, jobs.errors.append, at_once=2)
    for item in [["bad"], ["bad"], [3], [4], [5]]:
        jobs.waiting.put(item)
    crew.resize(4)
    wait_until(lambda: len(holding) == 2)
    threading.Event().wait(0.2)
    assert (len(holding), jobs.waiting.qsize()) == (2, 3)
    for done in range(5):
        go_on.release()
        wait_until(lambda done=done: len(jobs.done) + len(jobs.errors) == done + 1)
    assert [str(error) for error in jobs.errors] == ["bad work"] * 2
    assert sorted(item for _, item in jobs.done) == [[3], [4], [5]] and max(most) == 2
    crew.stop()


def test_places_are_released_after_missing_work_and_errors():
    answers, seen, errors = iter([None, [], ValueError("no"), None, ["x"]]), [], []

    def fetch(timeout):
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    crew = Crew("t8", fetch, seen.append, errors.append, at_once=1)
    crew.resize(2)
    wait_until(lambda: seen)
    crew.stop()
    assert seen == [["x"]] and [str(error) for error in errors] == ["no"]


def test_idle_share(monkeypatch):
    """Waiting takes 3 of every 4 seconds."""
    now, finished, rounds = [100.0], threading.Event(), iter([["a"], ["b"]])
    monkeypatch.setattr(crew_module.time, "monotonic", lambda: now[0])

    def fetch(timeout):
        item = next(rounds, None)
        now[0] += 3 if item else 0
        return item or finished.set()

    def work(item):
        now[0] += 1

    crew = Crew("t5", fetch, work, print)
    crew.resize(1)
    assert finished.wait(20)
    crew.stop()
    assert crew.idle_share() == pytest.approx(6 / 8)
    now[0] += 5
    assert crew.idle_share() == 0
