from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from gunreal.experience import queues
from gunreal.experience.queues import Closed, Pipe


@pytest.fixture
def pipe():
    pipe = Pipe(queues.ROLLOUT)
    yield pipe
    pipe.close()


def rollouts(process, firsts):
    return np.array([(process, 7, first) for first in firsts], queues.ROLLOUT)


def test_records_are_as_small_as_they_look():
    sizes = {name: getattr(queues, name).itemsize for name in ("REQUEST", "REPLY", "ROLLOUT", "EPISODE")}
    assert sizes == {"REQUEST": 8, "REPLY": 2, "ROLLOUT": 16, "EPISODE": 8}


def test_one_read_takes_all_that_waits_in_order(pipe):
    pipe.put(rollouts(1, [10, 2**40]))
    pipe.put(rollouts(2, [30]))
    assert len(pipe) == 3
    got = pipe.get(100, timeout=None)
    assert got.tolist() == [(1, 7, 10), (1, 7, 2**40), (2, 7, 30)]
    assert len(pipe) == 0


def test_a_read_takes_at_most_the_requested_number(pipe):
    pipe.put(rollouts(0, range(5)))
    assert pipe.get(2, 0)["first"].tolist() == [0, 1]
    assert pipe.get(2, 0.01)["first"].tolist() == [2, 3]
    assert pipe.get(2, None)["first"].tolist() == [4]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_nothing_waits(pipe, timeout):
    got = pipe.get(10, timeout)
    assert got.shape == (0,) and got.dtype == queues.ROLLOUT


def test_a_read_waits_for_its_seconds(pipe):
    start = time.monotonic()
    assert len(pipe.get(10, 0.2)) == 0
    assert 0.2 <= time.monotonic() - start < 60


def test_a_reader_is_woken(pipe):
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.get(10, None)))
    reader.start()
    pipe.put(rollouts(3, [1]))
    reader.join(10)
    assert got[0].tolist() == [(3, 7, 1)]


def test_many_writers_and_readers_lose_and_tear_nothing(pipe):
    """Far more than the pipe holds, in pieces of different sizes: every record arrives once, a writer's in order."""
    count, writers = 6000, 3
    got: list[list] = [[], []]

    def write(process):
        firsts, start = np.arange(count), 0
        while start < count:  # 1, 2, ... 400 records at a time; 256 fit an atomic write
            size = 1 + start % 400
            pipe.put(rollouts(process, firsts[start : start + size]))
            start += size

    def read(into):
        while not into or not len(into[-1]) or into[-1]["process"][-1] >= 0:  # empty where the other was faster
            into.append(pipe.get(1000, 60.0))

    threads = [threading.Thread(target=write, args=(process,)) for process in range(writers)]
    readers = [threading.Thread(target=read, args=(into,)) for into in got]
    for thread in [*threads, *readers]:
        thread.start()
    for thread in threads:
        thread.join(60)
    for reader in readers:  # one at a time ends on the mark that is read last
        while reader.is_alive():
            pipe.put(rollouts(-1, [0]))
            reader.join(0.05)
    parts = [np.concatenate(into) for into in got]
    for part in parts:
        for process in range(writers):
            assert (np.diff(part["first"][part["process"] == process]) > 0).all()
    together = np.concatenate(parts)
    assert (together["agent"] == 7).all()
    for process in range(writers):
        assert np.sort(together["first"][together["process"] == process]).tolist() == list(range(count))


def test_end_closes_the_queue_behind_what_waits():
    pipe = Pipe(queues.REPLY)
    pipe.put(np.array([(1, 2)], queues.REPLY))
    pipe.end()
    pipe.end()  # once more does no harm
    assert pipe.get(10, None).tolist() == [(1, 2)]
    with pytest.raises(Closed):
        pipe.get(10, None)
    pipe.close()


def test_a_writer_learns_that_nobody_reads():
    pipe = Pipe(queues.REQUEST)
    os.close(pipe.read_fd)
    with pytest.raises(Closed):
        pipe.put(np.array([(0, 0)], queues.REQUEST))
    os.close(pipe.write_fd)
