"""The coordinator: it controls the rounds and writes metrics and checkpoints. It never handles gradients."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster import serials, shards
from gunreal.cluster.engine import Engine, in_one_line
from gunreal.cluster.fleet import Fleet, Member
from gunreal.cluster.model import Model
from gunreal.cluster.node import Answer, Node
from gunreal.cluster.reducer import Refused
from gunreal.cluster.report import Report
from gunreal.cluster.rounds import Round, answers_per_turn, rate_factor
from gunreal.config.derived import rates
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config
from gunreal.config.warning import warn
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask
from gunreal.records import checkpoint
from gunreal.runtime import starting
from gunreal.runtime.base import Contents, Status
from gunreal.runtime.system import make_metrics

_TICK = 0.1  # seconds between calls of `tick`
_ATTEMPTS = 3  # at the step of a round while reducers die; between rounds, the run sees that it is being stopped
_LOST = 10  # rounds in a row whose gradients reducers cannot get, after which the run ends


class Gradient(NamedTuple):
    """A gradient for the present round.

    Attributes:
      slices: references to the slices of the gradient.
    """

    member: Member
    slices: list[Any]
    answer: Answer


class Coordinator(Status):
    """The `Runner` of cluster runs.

    Attributes:
      node: class of the nodes.
    """

    node: type = Node

    def __init__(
        self,
        config: Config,
        spec: Spec,
        tasks: tuple[AuxiliaryTask, ...],
        resumed: checkpoint.Checkpoint | None,
    ):
        self._gradients: list[Gradient] = []
        self._lost = 0  # rounds in a row whose gradients reducers could not get
        self._model: Model | None = None
        self._shards: shards.Shards | None = None
        self._report = Report()
        self._fields = dataclasses.asdict(config)
        self._tasks = [task.name for task in tasks]
        self._start = starting.load(config) if config.init and not resumed else None
        self._round = Round(config.quorum if config.sync == "on" else 0.5 / 1024, answers_per_turn(config))
        self._engine = Engine(config)
        with contextlib.ExitStack() as failed:
            failed.callback(self._engine.close)
            super().__init__(config, make_metrics(tasks, resumed), resumed)
            self._fleet = Fleet(self._engine, config, spec, serials.first(resumed), self.node)
            failed.pop_all()

    def run(self, tick: Callable[[], None]) -> None:
        """Runs rounds until the run is stopped. `tick` is called about ten times per second."""
        ticked = 0.0
        while not self.stopped_by:
            self._fleet.look()
            known = len(self._gradients)
            for member in self._fleet.wait(self._patience()):
                self._receive(member)
                if self.config.sync == "off":  # another gradient may have arrived, too
                    self._advance(known)
            self._advance(known)
            self._send_all()
            now = time.monotonic()
            if now - ticked >= _TICK:
                ticked = now
                tick()

    def _advance(self, known: int) -> None:
        """Sends all gradients but the first `known` to the reducers, and takes a step if the round is over."""
        if self._shards and len(self._gradients) > known:
            self._shards.add([gradient.slices for gradient in self._gradients[known:]])
        if self._round.is_over(time.monotonic(), len(self._gradients), len(self._awaited())):
            self._update()

    def _patience(self) -> float:
        """Seconds to wait for the next answer."""
        left = self._round.ends() - time.monotonic() if self._gradients else _TICK
        return min(_TICK, max(0.0, left))

    def _awaited(self) -> list[Member]:
        """The nodes that compute a gradient for this round and are likely to be in time.

        This leaves out a node that missed the deadline last time, and one that still computes for an earlier round.
        """
        if self._model is None:
            return []
        version, deadline = self._model.version, self._round.deadline()
        return [m for m in self._fleet.ready() if m.pending and m.version == version and m.took <= deadline]

    def _receive(self, member: Member) -> None:
        found = self._fleet.result(member)
        if found is None:
            return
        if member.description is None:
            self._welcome(member, found)
            return
        assert self._model is not None
        member.answers += 1
        late = member.version != self._model.version and self.config.sync == "on"
        member.took = time.monotonic() - member.sent
        self._round.answered(member.slot, member.took)
        self._report.answered(member, found, late, self._model.version - member.version)
        counted = found.counted
        counted["counts"]["updates"] = 0  # rounds are counted instead
        if late:
            counted["counts"]["trained"] = 0
        for name in ("grad_norm", "batch_train"):
            counted["means"].pop(name, None)
        self.metrics.add(counted)
        if self.metrics.step >= self.config.steps:
            self.stop("steps")
        if found.used and not late:
            self._gradients.append(Gradient(member, member.slices, found))

    def _welcome(self, member: Member, description: Any) -> None:
        """Accepts a node that has started. The first one describes the network."""
        try:
            if self._model is None:
                state = description.state
                if self.resumed:
                    Model(state, description.rules).check(self.resumed.state)
                    state = self.resumed.state
                elif self._start:
                    state, self._start = starting.adopt(state, self._start, self._tasks, self.config), None
                self._model = Model(state, description.rules)
                facts = Facts(machines=len(self._engine.machines()), weights=self._model.size)
                self.config = resolved(self.config, facts)
                whole = self._model.shard()
                self._shards = shards.Shards(self._engine, self._fields, whole, self.config.reducers, self._model.own)
                self._round.begin(time.monotonic())
            else:
                self._model.check(description.state)
        except ValueError as error:
            self._fleet.lost(member, Refused(str(error)))
            return
        member.description = description._replace(state={})

    def _send(self, member: Member) -> None:
        """Sends the present weights to a node, which computes its next gradient with them."""
        assert self._model is not None and self._shards is not None
        parts = self._shards.weights
        method = member.actor.gradient.options(num_returns=1 + len(parts))
        member.version, member.sent = self._model.version, time.monotonic()
        now = rates(self.config, self.metrics.step)
        untrained = self._model.untrained.changing() if member.answers else self._model.untrained.arrays
        member.pending, *member.slices = method.remote(member.version, now, untrained, *parts)
        rows = 1 + len(self._model.own.averages)
        self._report.sent(4 * rows * self._model.size + sum(array.nbytes for array in untrained.values()))

    def _update(self) -> None:
        """Takes one step with the gradients that have arrived, and sends the new weights to the free nodes."""
        assert self._model is not None and self._shards is not None
        found = sorted(self._gradients, key=lambda gradient: gradient.member.slot)
        self._gradients = []
        now = time.monotonic()
        self._report.ended(now - self._round.began, [gradient.answer.seconds for gradient in found])
        self._round.begin(now)
        norm, rate, before, attempts = None, 0.0, self._model.untrained.arrays, 0
        while found and norm is None:
            rate = self._rate()
            rescalings = self._model.untrained.absorb([gradient.answer.untrained for gradient in found])
            step = self._shards.begin([gradient.slices for gradient in found], rate, rescalings, not attempts)
            self._model.version += 1
            sent = self._shards.weights
            self._send_all()
            try:
                norm, found = self._finish(step, found, not attempts)
            except AgentFailure:
                self._model.version -= 1
                self._model.untrained.arrays = before
                raise
            attempts += 1
            if self._shards.weights != sent:
                self._fleet.recall(self._model.version)
            if norm is None:
                self._model.version -= 1
                self._model.untrained.arrays = before
                if not self._engine.machines():  # a reducer has no place, and the run may be stopped meanwhile
                    found = []
                elif found and (attempts == _ATTEMPTS or self.in_haste):
                    warn("reducers keep failing, and a round has no update; check the machines' disks and Ray's logs")
                    found = []
        if norm is not None:
            self._lost = 0
        if norm is not None and math.isfinite(norm):
            size = sum(gradient.answer.size for gradient in found)
            self.metrics.trained(0, (), {"grad_norm": norm, "learning_rate": rate}, batch=size)
        elif norm is not None:  # the value layer was not rescaled
            self._model.untrained.arrays = before
            self._report.refused += len(found)

    def _finish(self, step: shards.Step, found: list[Gradient], added: bool) -> tuple[float | None, list[Gradient]]:
        """Waits for a step. Returns the norm of its gradient, or None and the gradients to repeat it with.

        Raises:
          AgentFailure: a reducer fails twice, although it lives and has all gradients.
        """
        assert self._shards is not None
        ray_error = self._engine.ray.exceptions.RayError
        try:
            return self._shards.finish(step), found
        except ray_error as error:
            there = [gradient for gradient in found if self._is_there(gradient)]
            if added or len(there) < len(found):
                return None, there
            cause = getattr(error, "cause", error)
            if isinstance(cause, ray_error):  # Ray takes a gradient for there if it knows that the gradient is lost
                self._skip_round(cause)
                return None, []
            raise AgentFailure(f"a reducer failed twice: {cause!r}; see Ray's logs, and use --resume") from error

    def _skip_round(self, why: BaseException) -> None:
        self._lost += 1
        text = f"a reducer cannot get the gradients of a round: {in_one_line(why)}"
        if self._lost == _LOST:
            raise AgentFailure(f"{text}, {_LOST} times in a row; see Ray's logs, and use --resume")
        warn(f"{text}; the round has no update")

    def _rate(self) -> float:
        config, step = self.config, self.metrics.step
        rate = rates(config, step).learning_rate
        return rate * rate_factor(config.rate_scaling, len(self._fleet.ready()), step, config.warmup)

    def _send_all(self) -> None:
        """Sends the present weights to all nodes that are free."""
        for member in self._fleet.ready():
            if member.pending is None and not any(member is other.member for other in self._gradients):
                self._send(member)

    def _is_there(self, gradient: Gradient) -> bool:
        ray, count = self._engine.ray, len(gradient.slices)
        return len(ray.wait(gradient.slices, num_returns=count, timeout=1.0)[0]) == count

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""
        members = self._fleet.ready()
        replaced = self._shards.replaced if self._shards else 0
        return self._report.line(self.metrics, members, self._fleet.replaced + replaced)

    def state(self) -> dict[str, np.ndarray]:
        """Copies weights, moments and averages from all reducers. Empty before there are any."""
        if self._model is None or self._shards is None:
            return {}
        return self._model.state(self._shards.whole())

    def contents(self) -> Contents | None:
        """What a checkpoint contains, from which a cluster or a single machine can continue."""
        if self._model is None or self._shards is None:
            return None
        return Contents(self.state(), {}, serials.saved(self._fleet.serial, self.config))

    def drain_episodes(self) -> None:
        """Does nothing, because the answers of nodes bring their episodes."""

    def close(self) -> None:
        """Ends all nodes, and Ray if it was started for this run."""
        with contextlib.closing(self._engine):
            self._fleet.close()
