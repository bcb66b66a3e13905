"""The reducers of a run: how they take a step, and how a reducer that has died is replaced."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.engine import Engine, in_one_line
from gunreal.cluster.flat import bounds
from gunreal.cluster.reducer import Own, Reducer, Rescaling, Shard
from gunreal.config.version import VERSION
from gunreal.config.warning import warn

_BACKUP = 5.0  # seconds between copies of the optimizer's averages. The weights of every round are kept in any case.
_PATIENCE = 10.0  # seconds for a call of a reducer; only a lost machine or a stopped process takes so long
_FAREWELL = 2.0  # seconds for the last copy after the head is lost: a reducer answers within milliseconds, or never
_LOOK = 0.5  # seconds between looks for a machine
_STARTING = 120.0  # seconds for the start of its process


class Step(NamedTuple):
    """References to a step that the reducers take.

    Attributes:
      squares: the result of `Reducer.gather` for each reducer.
      updates: number of updates of each reducer.
      before: references to the slices of the weights before the step.
      rescalings: changes of some weights after the step, in places of all weights.
    """

    squares: list[Any]
    updates: list[Any]
    before: list[Any]
    rescalings: Sequence[Rescaling]


class Shards:
    """The reducers and the references to the weights that they returned.

    Attributes:
      weights: references to the slices of the present weights.
      replaced: number of reducers that have died.
    """

    def __init__(self, engine: Engine, fields: dict[str, Any], whole: Shard, count: int, own: Own):
        self._engine, self._ray, self._fields, self._own = engine, engine.ray, fields, own
        self.parts = bounds(whole.weights.shape[1], count)
        self._kept = [whole.within(part) for part in self.parts]
        self.replaced = 0
        self._moves = [0] * count  # of each reducer, to the next machine in turn, so that it tries them all
        self._reducers: list[Any] = [self._start(place) for place in range(count)]
        self._await(self._reducers)
        self.weights: list[Any] = [self._ray.put(shard.weights) for shard in self._kept]
        self._updates = whole.updates
        self._rescalings: list[tuple[int, Sequence[Rescaling]]] = []  # since the copies, after so many updates
        self._copies: list[Any] = []
        self._copied = time.monotonic()

    def _start(self, place: int) -> Any:
        machines = self._engine.machines()
        while not machines:  # the last one is being replaced, or the head is about to be given up
            time.sleep(_LOOK)
            machines = self._engine.machines()
        machine = machines[(place + self._moves[place]) % len(machines)]  # a lost machine may still be listed
        own = self._own.within(self.parts[place])
        return self._engine.actor(Reducer, VERSION, self._fields, self._kept[place], own, machine=machine)

    def _await(self, reducers: Sequence[Any]) -> None:
        """Waits until the processes have started."""
        started = [reducer.updates.remote() for reducer in reducers]
        self._engine.wait(started, _STARTING)

    def add(self, gradients: Sequence[Sequence[Any]]) -> None:
        """Sends references to the slices of each node's gradient, which travel while others are computed."""
        for place, reducer in enumerate(self._reducers):
            reducer.add.remote(*(gradient[place] for gradient in gradients))

    def begin(
        self, gradients: Sequence[Sequence[Any]], rate: float, rescalings: Sequence[Rescaling], added: bool
    ) -> Step:
        """Lets the reducers take a step, and makes `weights` refer to its result. Does not wait.

        Ray then sends results to nodes and reducers as soon as they exist, without a detour through this process.

        Args:
          gradients: references to the slices of each node's gradient.
          rescalings: changes of some weights after the step, in places of all weights.
          added: whether `add` has sent exactly these gradients to the reducers.
        """
        squares = [
            reducer.gather.remote(len(gradients))
            if added
            else reducer.gather.remote(0, *(gradient[place] for gradient in gradients))
            for place, reducer in enumerate(self._reducers)
        ]
        refs = [
            reducer.apply.options(num_returns=2).remote(rate, [each.within(part) for each in rescalings], *squares)
            for reducer, part in zip(self._reducers, self.parts, strict=True)
        ]
        before, self.weights = self.weights, [weights for _, weights in refs]
        return Step(squares, [updates for updates, _ in refs], before, rescalings)

    def finish(self, step: Step) -> float | None:
        """Waits until a step is taken.

        If a reducer dies or fails while it applies the gradient, its slice is only rescaled. The step is not repeated,
        because the other reducers have taken it.

        Returns:
          The norm of the gradient. None if a reducer died before, and none has taken the step.

        Raises:
          ray.exceptions.RayError: a gradient is lost, or did not arrive. No reducer has taken the step.
        """
        given, self.weights = self.weights, step.before
        squares = [self._result(ref) for ref in step.squares]
        dead = [place for place, found in enumerate(squares) if found is None]
        norm = None if dead else math.sqrt(sum(squares))
        taken = norm is not None and math.isfinite(norm)
        if norm is not None:
            dead = [place for place, updates in enumerate(step.updates) if not self._has_applied(updates)]
            self.weights = [step.before[place] if place in dead else ref for place, ref in enumerate(given)]
        if taken:
            self._updates += 1
            self._rescalings.append((self._updates, step.rescalings))
        for place in dead:
            self._recover(place, missed=taken)
        for place in dead:
            self._replace(place)
        self._copy()
        return norm

    def _has_applied(self, updates: Any) -> bool:
        """Whether a reducer has taken a step without an error. Raises HeadLost."""
        try:
            return self._result(updates) is not None
        except self._ray.exceptions.RayError as error:
            warn(f"a reducer failed in a step ({in_one_line(error)}); another takes its place")
            return False

    def _result(self, ref: Any) -> Any:
        """What a reducer returned, or None if it has died. Raises HeadLost."""
        try:
            return self._ray.get(ref, timeout=0) if self._engine.wait([ref], _PATIENCE) else None
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return None

    def _copy(self) -> None:
        """Stores the copies that were requested if they have arrived, and requests new ones when it is time.

        Ray begins to fetch a copy from another machine when it is first waited for.
        """
        if self._copies and not self._ray.wait(self._copies, num_returns=len(self._copies), timeout=0)[1]:
            copies, self._copies = self._copies, []
            with contextlib.suppress(self._ray.exceptions.RayError):  # one was lost with its machine
                self._kept = self._ray.get(copies)
                oldest = min(shard.updates for shard in self._kept)
                self._rescalings = [(updates, found) for updates, found in self._rescalings if updates > oldest]
        if not self._copies and time.monotonic() - self._copied > _BACKUP:
            self._copied = time.monotonic()
            self._copies = [reducer.shard.remote() for reducer in self._reducers]

    def _replace(self, place: int) -> None:
        """Starts another reducer with what is kept of the slice. Without a machine, the next step tries again."""
        if not self._engine.machines():
            return
        self._engine.kill(self._reducers[place])
        self._copies = []
        self.replaced += 1
        self._moves[place] += 1
        self._reducers[place] = self._start(place)
        self._await([self._reducers[place]])

    def _recover(self, place: int, missed: bool = False) -> Shard:
        """Keeps and returns the weights of the last round with the last copy of the averages.

        `missed` says whether the reducer has missed the last step.
        """
        with contextlib.suppress(self._ray.exceptions.RayError):  # they may be lost with their machine
            self._engine.wait(self.weights[place : place + 1], _PATIENCE)
            weights = self._ray.get(self.weights[place], timeout=0)
            self._kept[place] = self._kept[place]._replace(weights=weights, updates=self._updates - missed)
        kept = self._keep_rescaled(place)
        self.weights[place] = self._ray.put(kept.weights)
        return kept

    def _keep_rescaled(self, place: int) -> Shard:
        """Rescales what is kept of a slice as the other slices were, so that the value layer fits the moments."""
        kept = self._kept[place]
        weights = kept.weights.copy()
        for updates, rescalings in self._rescalings:
            if updates > kept.updates:
                for rescaling in rescalings:
                    rescaling.within(self.parts[place]).apply(weights)
        self._kept[place] = kept._replace(weights=weights, updates=self._updates)
        return self._kept[place]

    def whole(self) -> Shard:
        """Weights and averages of all slices together. For a lost reducer, they may be those of the last copy.

        A lost reducer is not replaced before the next step, because a checkpoint must not wait for a free machine.
        """
        if self._engine.is_lost:
            self._keep_last()
            return self._joined([self._keep_rescaled(place) for place in range(len(self.parts))])
        asked = [reducer.shard.remote() for reducer in self._reducers]
        found: list[Shard | None] = [None] * len(asked)
        for place, ref in enumerate(asked):
            with contextlib.suppress(self._ray.exceptions.RayError):  # it may be lost with its machine
                found[place] = self._result(ref)
        return self._joined([shard or self._recover(place) for place, shard in enumerate(found)])

    def _keep_last(self) -> None:
        """Takes a last copy from each reducer that still answers."""
        asked = {reducer.shard.remote(): place for place, reducer in enumerate(self._reducers) if reducer is not None}
        ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_FAREWELL) if asked else ([], [])
        for ref in ready:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._kept[asked[ref]] = self._ray.get(ref, timeout=_FAREWELL)
        self._reducers = [None] * len(self._reducers)  # nobody takes another step

    def _joined(self, shards: Sequence[Shard]) -> Shard:
        averages = [np.concatenate(parts) for parts in zip(*(shard.averages for shard in shards), strict=True)]
        return Shard(np.concatenate([shard.weights for shard in shards], axis=1), averages, self._updates)
