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


def test_one_read_takes_all_that_waits_in_order(pipe):
    pipe.put(rollouts(1, [10, 2**40]))
    pipe.put(rollouts(2, [30]))
    assert len(pipe) == 3
    got = pipe.get(100, timeout=None)
    assert got.tolist() == [(1, 7, 10), (1, 7, 2**40), (2, 7, 30)]
    assert len(pipe) == 0
    pipe.put(rollouts(0, range(5)))  # at most the requested number
    assert [pipe.get(2, timeout)["first"].tolist() for timeout in (0, 0.01, None)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_a_read_waits_for_its_seconds(pipe, timeout):
    start, got = time.monotonic(), pipe.get(10, timeout)
    assert timeout <= time.monotonic() - start < 60
    assert got.shape == (0,) and got.dtype == queues.ROLLOUT


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
