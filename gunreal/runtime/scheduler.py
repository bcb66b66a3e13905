"""Moves N_A, N_P and N_T at run time to train on as many frames per second as the machine allows, within its memory.

Both policies climb by trial: measure an interval, change one count, measure again, keep the change or undo it.
`Annealing` is the paper's random walk (GA3C, section 4.3). `Queue` tries only what idle shares and queues point at, and
comes to rest (Multiverse, "Updated Schedule": the random walk unsettles the queues). Memory bounds both (GUNREAL,
section 3.2).

Nothing here starts or stops anything: the caller observes an interval, asks `propose`, and applies the answer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

MEMORY_SHARE = 0.95  # of the limit: the bound on what a run uses


class Counts(NamedTuple):
    """What the scheduler sets, each at least 1: agent processes (N_A), predictors per queue (N_P), trainers (N_T)."""

    processes: int
    predictors: int
    trainers: int


class Observation(NamedTuple):
    """One interval under unchanged counts. Shares are of the interval, 0..1, the mean over threads or agents.

    Attributes:
      frames_per_second: agent steps trained on per second.
      requests: mean number of requests that wait in the base prediction queue.
      predictor_idle: share of time in which a base predictor waits for requests (waiting for the device is work).
      trainer_idle: share of time in which a trainer waits for a batch.
      blocked: share of time in which an agent waits for room in the training queue.
      memory: bytes that all processes use, with what is promised to replay rings but not written yet.
      memory_limit: bytes that they may use.
      memory_per_process: bytes that one more agent process will use, with full replay rings.
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
    """More or less of one count, by its name in `Counts`."""

    name: str
    by: int

    def __call__(self, counts: Counts) -> Counts:
        """The counts after the move."""
        return counts._replace(**{self.name: getattr(counts, self.name) + self.by})


MOVES = tuple(Move(name, by) for name in Counts._fields for by in (1, -1))


def is_full(observation: Observation) -> bool:
    """True where memory is used up: the present counts are the ceiling from now on."""
    return observation.memory >= MEMORY_SHARE * observation.memory_limit


def bounded(proposal: Counts, counts: Counts, observation: Observation, ceiling: Counts | None = None) -> Counts:
    """The proposal, without what would fall below 1, rise above the ceiling or cross the memory's bound.

    Args:
      proposal: what a policy would like.
      counts: the present counts. A run that already uses too much is not shrunk: it only doesn't grow.
      observation: of the present counts.
      ceiling: upper limits, from the first time that `is_full`.
    """
    free = MEMORY_SHARE * observation.memory_limit - observation.memory
    affordable = counts.processes + max(0, math.floor(free / observation.memory_per_process))
    highest = Counts(affordable, proposal.predictors, proposal.trainers)
    if ceiling is not None:
        highest = Counts(*map(min, highest, ceiling))
    return Counts(*(max(1, min(wanted, most)) for wanted, most in zip(proposal, highest, strict=True)))


class Trial(NamedTuple):
    """A move under way, and what its throughput has to be measured against."""

    move: Move
    counts: Counts
    frames_per_second: float


class Scheduler:
    """Climbs by trial within the bounds; a policy says what to try next and which of two measurements is better."""

    def __init__(self) -> None:
        self.ceiling: Counts | None = None
        self._trial: Trial | None = None

    def propose(self, counts: Counts, observation: Observation) -> Counts:
        """The counts for the next interval, given the last one's.

        A rejected trial is taken back for an interval of its own, which measures anew what the next one has to beat:
        speeds drift while the policy learns, and one lucky interval must not stand for ever.
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
            return counts  # nothing has been trained on yet: not a measurement
        move = self._choose(counts, observation, [move for move in MOVES if self._fits(move, counts, observation)])
        if move is None:
            return counts
        self._trial = Trial(move, counts, frames)
        return move(counts)

    def _fits(self, move: Move, counts: Counts, observation: Observation) -> bool:
        return bounded(move(counts), counts, observation, self.ceiling) == move(counts)

    def get_state(self) -> dict[str, Any]:
        """Everything that `set_state` needs to go on exactly, in types that JSON keeps."""
        return {"ceiling": self.ceiling, "trial": self._trial}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `get_state` returned, as it is or back from JSON."""
        self.ceiling = Counts(*state["ceiling"]) if state["ceiling"] else None
        self._trial = None
        if state["trial"]:
            move, counts, frames = state["trial"]
            self._trial = Trial(Move(*move), Counts(*counts), frames)

    def _choose(self, counts: Counts, observation: Observation, allowed: list[Move]) -> Move | None:
        """The next move to try, one of `allowed`; None to stay."""
        raise NotImplementedError

    def _better(self, counts: Counts, frames: float, trial: Trial) -> bool:
        """Whether `frames` per second under `counts` is worth leaving what was there before the trial."""
        raise NotImplementedError

    def _judged(self, move: Move, kept: bool, gain: float) -> None:
        """Told how a trial ended; `gain` is relative."""


class Annealing(Scheduler):
    """GA3C's random walk: N_A, N_P or N_T by +-1 at random, taken back if fewer frames were trained on."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

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
    """Tries what relieves the bottleneck that queues and idle shares show, and rests when nothing helps.

    A process or thread more must bring a twentieth of its proportional share, and goes again if it doesn't: trials
    climb `frames_per_second / (N_A N_P N_T)^0.05`, which has a top. A move that was kept is tried again twice as large,
    until one fails: by ones, some tens of processes would take as many intervals. What failed twice by one against a
    bottleneck is given up, until an addition has moved the bottleneck or throughput has moved by itself. An addition
    must bring a clear gain for that: where throughput is flat, noise keeps every other one and no search would end.
    """

    busy = 0.2  # idle share below which threads are the bottleneck
    worth = 0.05  # share of its proportional gain that an addition must bring
    patience = 2  # failures after which a move is given up
    clear = 0.1  # relative gain by which an addition has moved the bottleneck
    drift = 0.25  # relative change of throughput at rest that asks for a new search

    def __init__(self) -> None:
        super().__init__()
        self._bottleneck = ""  # that the trial under way is to relieve
        self._failures: dict[tuple[str, Move], int] = {}
        self._rest: float | None = None  # throughput when nothing was left to try
        self._kept: Move | None = None  # the last trial's, unless it failed

    def get_state(self) -> dict[str, Any]:
        """See `Scheduler.get_state`."""
        failures = [[bottleneck, move, times] for (bottleneck, move), times in self._failures.items()]
        own = {"bottleneck": self._bottleneck, "failures": failures, "rest": self._rest, "kept": self._kept}
        return super().get_state() | own

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Scheduler.set_state`."""
        super().set_state(state)
        self._bottleneck, self._rest = state["bottleneck"], state["rest"]
        self._kept = Move(*state["kept"]) if state.get("kept") else None  # older checkpoints have none
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
        """The move, twice as large as the last one if that was of its kind and was kept, as far as the bounds allow."""
        by = move.by
        if self._kept and self._kept.name == move.name and self._kept.by * by > 0:
            by = 2 * self._kept.by
        while by != move.by and not self._fits(Move(move.name, by), counts, observation):
            by //= 2
        return Move(move.name, by)

    def _relief(self, counts: Counts, observation: Observation) -> list[Move]:
        """Moves that the observation points at, the most promising one first: it names the bottleneck."""
        idle = {"trainers": observation.trainer_idle, "predictors": observation.predictor_idle}
        busy = sorted((name for name, share in idle.items() if share < self.busy), key=idle.__getitem__)
        if observation.requests < 1 and "predictors" in busy:
            busy.remove("predictors")  # at work, yet nothing waits for them
        moves = [Move(name, 1) for name in busy]
        agents = Move("processes", -1 if observation.blocked > self.busy else 1)
        # More agents make larger predictions, which may be all that busy predictors need.
        moves = [agents, *moves] if busy[:1] == ["predictors"] else [*moves, agents]
        moves += [Move(name, -1) for name, share in idle.items() if share * getattr(counts, name) >= 1]  # one idles
        # Or too many share the cores.
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
