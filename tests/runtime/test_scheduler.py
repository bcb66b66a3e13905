"""The scheduler's policies on simulated machines, and the bounds on what they may propose."""

from __future__ import annotations

import itertools
import json
import math
from typing import NamedTuple

import numpy as np
import pytest

from gunreal.runtime.scheduler import Annealing, Balancing, Counts, Observation, Scheduler

ONES = Counts(1, 1, 1)
POLICIES = {"annealing": lambda: Annealing(seed=0), "queue": Balancing}


class Machine(NamedTuple):
    """A pipeline nearly as fast as its slowest stage, on cores that its stages share."""

    env: float  # frames per second of one agent process on one core
    predictor: float  # of one predictor
    trainer: float  # of one trainer
    device: float = 1e9  # of all trainers together
    cores: int = 8
    overhead: float = 0.02  # slowdown by each process and thread beyond the number of cores
    memory: int = 10**12  # bytes
    per_process: int = 1000  # bytes

    def observe(self, counts: Counts, noise: float = 0.0) -> Observation:
        """What an interval under these counts looks like."""
        rates = self.env, self.predictor, self.trainer
        env, predict, train = (rate * count for rate, count in zip(rates, counts, strict=True))
        train = min(self.device, train)
        frames = sum(rate**-8.0 for rate in (env, predict, train)) ** (-1 / 8)  # queues run empty and full now and then
        wait = max(1, sum(frames / rate for rate in rates) / self.cores)
        switching = 1 + self.overhead * max(0, sum(counts) - self.cores)
        return Observation(
            frames_per_second=frames / (wait * switching) * (1 + noise),
            requests=2.0 if predict <= env else 0.2,
            predictor_idle=1 - frames / predict,
            trainer_idle=1 - frames / train,
            blocked=max(0.0, 1 - train / min(env, predict)),
            memory=self.per_process * counts.processes,
            memory_limit=self.memory,
            memory_per_process=self.per_process,
        )

    def best(self) -> float:
        """The highest throughput of all settings."""
        settings = itertools.starmap(Counts, itertools.product(range(1, 25), range(1, 9), range(1, 9)))
        return max(self.observe(counts).frames_per_second for counts in settings)


MACHINES = {
    "slow environments": Machine(env=500, predictor=20_000, trainer=10_000),
    "slow predictors": Machine(env=3000, predictor=1500, trainer=10_000, cores=12),
    "slow trainers": Machine(env=3000, predictor=10_000, trainer=1500, cores=12),
    "slow device": Machine(env=900, predictor=4000, trainer=2000, device=2500),
    "balanced": Machine(env=1000, predictor=2500, trainer=2000, cores=16),
    "two cores": Machine(env=2500, predictor=9000, trainer=4000, device=4000, cores=2),
}
SETTINGS = list(itertools.product(MACHINES, (0.0, 0.01), (ONES, Counts(15, 5, 5))))
SETTINGS.append(("two cores", 0.05, ONES))  # intervals differ more than throughput does


def run(
    scheduler: Scheduler, machine: Machine, counts: Counts, intervals: int, noise: float = 0.0, seed: int = 0
) -> list[Counts]:
    """The counts of every interval."""
    rng = np.random.default_rng(seed)
    history = [counts]
    for _ in range(intervals):
        history.append(scheduler.propose(history[-1], machine.observe(history[-1], noise * rng.standard_normal())))
    return history


def observation(**changes: float) -> Observation:
    """A learner that starves with predictors at leisure, and memory enough."""
    return Observation(1000.0, 0.0, 0.5, 0.5, 0.0, 0, 10**9, 1)._replace(**changes)


@pytest.mark.parametrize(("name", "noise", "start"), SETTINGS)
def test_queue_reaches_nine_tenths_of_the_best_and_rests(name: str, noise: float, start: Counts):
    machine = MACHINES[name]
    for seed in range(10 if noise > 0.01 else 1):
        history = run(Balancing(), machine, start, 120, noise, seed)
        assert len(set(history[-30:])) == 1
        assert machine.observe(history[-1]).frames_per_second >= 0.9 * machine.best()
        assert min(map(min, history)) >= 1


@pytest.mark.parametrize("seed", range(20))
def test_queue_on_machines_at_random(seed: int):
    rng = np.random.default_rng(seed)
    rates = [float(rate) for rate in 10 ** rng.uniform([2.5, 2.5, 2.5, 3], [4, 4, 4, 5])]
    machine = Machine(*rates, cores=int(rng.integers(2, 17)))
    history = run(Balancing(), machine, ONES, 200, noise=0.01)
    assert len(set(history[-30:])) == 1
    assert machine.observe(history[-1]).frames_per_second >= 0.9 * machine.best()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", MACHINES)
def test_annealing_reaches_nine_tenths_of_the_best(name: str, seed: int):
    machine = MACHINES[name]
    history = run(Annealing(seed), machine, ONES, 200, noise=0.01)
    assert np.mean([machine.observe(counts).frames_per_second for counts in history[-50:]]) >= 0.9 * machine.best()
    assert min(map(min, history)) >= 1
    steps = [np.abs(np.subtract(a, b)).sum() for a, b in itertools.pairwise(history)]
    assert max(steps) == 1


def at_rest(start: Counts) -> Balancing:
    """A scheduler for which nothing is left to try at `start`, with 1000 frames per second."""
    scheduler, resting = Balancing(), 0
    while resting < 3:
        trial = scheduler.propose(start, observation())
        resting = resting + 1 if trial == start else 0
        if trial != start:
            assert scheduler.propose(trial, observation(frames_per_second=1.0)) == start
    return scheduler


def test_queue_searches_again_once_throughput_has_drifted_since_it_came_to_rest():
    start = Counts(4, 2, 2)
    scheduler = at_rest(start)
    for frames in (1100.0, 1200.0, 1240.0, 800.0, 760.0):
        assert scheduler.propose(start, observation(frames_per_second=frames)) == start
    assert scheduler.propose(start, observation(frames_per_second=1260.0)) == Counts(5, 2, 2)
    assert at_rest(start).propose(start, observation(frames_per_second=740.0)) == Counts(5, 2, 2)


def test_nothing_moves_before_anything_was_trained():
    for scheduler in (Annealing(0), Balancing()):
        assert scheduler.propose(ONES, observation(frames_per_second=0.0)) == ONES


@pytest.mark.parametrize("name", POLICIES)
def test_memory_is_never_overshot(name: str):
    machine = MACHINES["slow environments"]._replace(memory=7000)  # 6 processes are 86 %, 7 are 100 %
    history = run(POLICIES[name](), machine, ONES, 200)
    assert max(counts.processes for counts in history) == 6


@pytest.mark.parametrize("name", POLICIES)
def test_counts_at_the_bound_are_the_ceiling_from_then_on(name: str):
    scheduler, counts = POLICIES[name](), Counts(5, 2, 3)
    scheduler.propose(counts, observation(memory=950, memory_limit=1000))
    assert scheduler.ceiling == counts
    for _ in range(100):  # memory is free again
        counts = scheduler.propose(counts, observation(frames_per_second=1000.0 * math.prod(counts)))
        assert all(count <= most for count, most in zip(counts, (5, 2, 3), strict=True))
    scheduler.propose(Counts(4, 2, 3), observation(memory=960, memory_limit=1000))
    assert scheduler.ceiling == (4, 2, 3)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("cut", [1, 10, 11, 12, 60])
def test_goes_on_exactly_from_its_state(name: str, cut: int):
    machine = MACHINES["balanced"]._replace(memory=10_000)
    whole = POLICIES[name]()
    head = run(whole, machine, ONES, cut)
    resumed = POLICIES[name]()
    resumed.set_state(json.loads(json.dumps(whole.get_state())))
    assert run(resumed, machine, head[-1], 40) == run(whole, machine, head[-1], 40)
    assert resumed.get_state() == whole.get_state()
