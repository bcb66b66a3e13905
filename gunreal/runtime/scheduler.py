"""Scheduling of N_A, N_P and N_T at run time, to train on as many frames per second as possible within the memory.

Both schedulers work by trial. They measure an interval, change one count, measure again, and keep or undo the change.
`Annealing` is the random walk of GA3C, section 4.3. `Balancing` (`--scheduler queue`) only tries changes that idle
shares and queue lengths suggest, and stops when nothing helps. Multiverse ("Updated Schedule") found that the random
walk disturbs the queues. Memory limits both (GUNREAL, section 3.2).

This module does not start or stop anything. The caller observes an interval, calls `propose` and applies the result.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gunreal.experience import seeds

MEMORY_SHARE = 0.95  # share of the memory limit that a run may use


class Counts(NamedTuple):
    """Numbers of agent processes (N_A), predictors per queue (N_P) and trainers (N_T), each at least 1."""

    processes: int
    predictors: int
    trainers: int


class Observation(NamedTuple):
    """One interval with unchanged counts. Shares of time are from 0 to 1, averaged over threads or agents.

    Attributes:
      frames_per_second: agent steps trained on per second.
      requests: mean number of waiting requests in the base prediction queue.
      predictor_idle: share of time a base predictor waits for requests. Waiting for the device counts as work.
      trainer_idle: share of time a trainer waits for a batch or gathers it.
      blocked: share of time an agent waits for room in the training queue.
      memory: memory of all processes in bytes, including parts of replay rings that are not yet written.
      memory_per_process: memory that one more agent process will use with full replay rings, in bytes.
    """

    frames_per_second: float
    requests: float
    predictor_idle: float
    trainer_idle: float
    blocked: float
    memory: int
    memory_limit: int
    memory_per_process: int


class Move(NamedTuple):
    """A change of one count, given by its name in `Counts`."""

    name: str
    by: int

    def __call__(self, counts: Counts) -> Counts:
        """The counts after the move."""
        return counts._replace(**{self.name: getattr(counts, self.name) + self.by})


MOVES = tuple(Move(name, by) for name in Counts._fields for by in (1, -1))


def is_full(observation: Observation) -> bool:
    """Whether memory is used up. The current counts then become the ceiling."""
    return observation.memory >= MEMORY_SHARE * observation.memory_limit


def bounded(proposal: Counts, counts: Counts, observation: Observation, ceiling: Counts | None = None) -> Counts:
    """Limits a proposal to counts of at least 1, to the ceiling and to the memory bound.

    A run that already uses too much memory does not shrink, but it cannot grow. The ceiling is set when `is_full` first
    holds.
    """
    free = MEMORY_SHARE * observation.memory_limit - observation.memory
    affordable = counts.processes + max(0, math.floor(free / observation.memory_per_process))
    highest = Counts(affordable, proposal.predictors, proposal.trainers)
    if ceiling is not None:
        highest = Counts(*map(min, highest, ceiling))
    return Counts(*(max(1, min(wanted, most)) for wanted, most in zip(proposal, highest, strict=True)))


class Trial(NamedTuple):
    """A move under trial, with the counts and the throughput before it."""

    move: Move
    counts: Counts
    frames_per_second: float


class Scheduler:
    """Base class that tries moves within the bounds. A subclass chooses moves and judges their results."""

    def __init__(self) -> None:
        self.ceiling: Counts | None = None
        self._trial: Trial | None = None

    def propose(self, counts: Counts, observation: Observation) -> Counts:
        """The counts for the next interval, given the counts and the observation of the last one.

        After a rejected trial, the previous counts are measured again for one interval. Speeds drift while the policy
        learns, and a single lucky interval must not remain the reference.
        """
        if is_full(observation):
            self.ceiling = Counts(*map(min, counts, self.ceiling or counts))
        frames = observation.frames_per_second
        trial, self._trial = self._trial, None
        if trial:
            kept = self._better(counts, frames, trial)
            self._judged(trial.move, kept, frames / trial.frames_per_second - 1)
            if not kept:
                return bounded(trial.counts, counts, observation, self.ceiling)
        elif frames <= 0:
            return counts  # nothing has been trained on yet, so there is no measurement
        move = self._choose(counts, observation, [move for move in MOVES if self._fits(move, counts, observation)])
        if move is None:
            return counts
        self._trial = Trial(move, counts, frames)
        return move(counts)

    def _fits(self, move: Move, counts: Counts, observation: Observation) -> bool:
        return bounded(move(counts), counts, observation, self.ceiling) == move(counts)

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`, in types that JSON preserves."""
        return {"ceiling": self.ceiling, "trial": self._trial}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state returned by `get_state`, directly or through JSON."""
        self.ceiling = Counts(*state["ceiling"]) if state["ceiling"] else None
        self._trial = None
        if state["trial"]:
            move, counts, frames = state["trial"]
            self._trial = Trial(Move(*move), Counts(*counts), frames)

    def _choose(self, counts: Counts, observation: Observation, allowed: list[Move]) -> Move | None:
        """The next move to try, one of `allowed`, or None to keep the counts."""
        raise NotImplementedError

    def _better(self, counts: Counts, frames: float, trial: Trial) -> bool:
        """Whether `frames` per second with `counts` is better than before the trial."""
        raise NotImplementedError

    def _judged(self, move: Move, kept: bool, gain: float) -> None:
        """Called with the result of a trial. `gain` is the relative change of throughput."""


class Annealing(Scheduler):
    """GA3C's random walk. It changes N_A, N_P or N_T by +-1 at random and undoes changes that reduce throughput."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng([seed, 0, 0, seeds.SCHEDULER])

    def get_state(self) -> dict[str, Any]:
        """See `Scheduler.get_state`."""
        return {**super().get_state(), "rng": self._rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Scheduler.set_state`."""
        super().set_state(state)
        self._rng.bit_generator.state = state["rng"]

    def _choose(self, counts: Counts, observation: Observation, allowed: list[Move]) -> Move | None:
        return allowed[self._rng.integers(len(allowed))] if allowed else None

    def _better(self, counts: Counts, frames: float, trial: Trial) -> bool:
        return frames >= trial.frames_per_second


class Balancing(Scheduler):
    """Relieves the bottleneck shown by queue lengths and idle shares, and rests when nothing helps.

    An additional process or thread is kept only if it brings at least a twentieth of its proportional gain. Trials thus
    maximize `frames_per_second / (N_A N_P N_T)^0.05`, which has a maximum.

    After a move is kept, the next one of its kind is twice as large, until one fails. Adding dozens of processes one by
    one would take too many intervals.

    A move by one that fails twice against a bottleneck is given up. It is tried again after an addition with a clear
    gain, which shifts the bottleneck, or after a drift of the throughput. The gain must be clear because noise keeps
    every other addition where throughput is flat, and the search would never end.
    """

    busy = 0.2  # idle share below which threads are the bottleneck
    worth = 0.05  # share of its proportional gain that an addition must bring
    patience = 2  # failures after which a move is given up
    clear = 0.1  # relative gain that counts as shifting the bottleneck
    drift = 0.25  # relative change of throughput at rest that starts a new search

    def __init__(self) -> None:
        super().__init__()
        self._bottleneck = ""  # the bottleneck that the current trial should relieve
        self._failures: dict[tuple[str, Move], int] = {}
        self._rest: float | None = None  # throughput when nothing was left to try
        self._kept: Move | None = None  # the move of the last trial, unless it failed

    def get_state(self) -> dict[str, Any]:
        """See `Scheduler.get_state`."""
        failures = [[bottleneck, move, times] for (bottleneck, move), times in self._failures.items()]
        own = {"bottleneck": self._bottleneck, "failures": failures, "rest": self._rest, "kept": self._kept}
        return super().get_state() | own

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Scheduler.set_state`."""
        super().set_state(state)
        self._bottleneck, self._rest = state["bottleneck"], state["rest"]
        self._kept = Move(*state["kept"]) if state["kept"] else None
        self._failures = {(bottleneck, Move(*move)): times for bottleneck, move, times in state["failures"]}

    def _choose(self, counts: Counts, observation: Observation, allowed: list[Move]) -> Move | None:
        frames = observation.frames_per_second
        if self._rest and abs(frames / self._rest - 1) > self.drift:
            self._failures.clear()
        relief = self._relief(counts, observation)
        self._bottleneck = relief[0].name
        untried = (m for m in relief if m in allowed and self._failures.get((relief[0].name, m), 0) < self.patience)
        move = next(untried, None)
        self._rest = None if move else self._rest or frames
        return move and self._stride(move, counts, observation)

    def _stride(self, move: Move, counts: Counts, observation: Observation) -> Move:
        """The move, doubled within the bounds if the last move was of the same kind and was kept."""
        by = move.by
        if self._kept and self._kept.name == move.name and self._kept.by * by > 0:
            by = 2 * self._kept.by
        while by != move.by and not self._fits(Move(move.name, by), counts, observation):
            by //= 2
        return Move(move.name, by)

    def _relief(self, counts: Counts, observation: Observation) -> list[Move]:
        """Moves suggested by the observation, the most promising first. The first one names the bottleneck."""
        idle = {"trainers": observation.trainer_idle, "predictors": observation.predictor_idle}
        busy = sorted((name for name, share in idle.items() if share < self.busy), key=idle.__getitem__)
        if observation.requests < 1 and "predictors" in busy:
            busy.remove("predictors")  # they are working, but nothing waits for them
        moves = [Move(name, 1) for name in busy]
        agents = Move("processes", -1 if observation.blocked > self.busy else 1)
        # More agents give larger predictions, which may be all that busy predictors need.
        moves = [agents, *moves] if busy[:1] == ["predictors"] else [*moves, agents]
        moves += [Move(name, -1) for name, share in idle.items() if share * getattr(counts, name) >= 1]  # one idles
        # Too many threads or processes may share the cores.
        return [*moves, Move(busy[0] if busy else "processes", -1), Move("processes", -1)]

    def _better(self, counts: Counts, frames: float, trial: Trial) -> bool:
        gain = frames * (math.prod(trial.counts) / math.prod(counts)) ** self.worth
        return gain > trial.frames_per_second

    def _judged(self, move: Move, kept: bool, gain: float) -> None:
        self._kept = move if kept else None
        if kept and move.by > 0 and gain > self.clear:
            self._failures.clear()
        elif not kept and abs(move.by) == 1:
            self._failures[self._bottleneck, move] = self._failures.get((self._bottleneck, move), 0) + 1
