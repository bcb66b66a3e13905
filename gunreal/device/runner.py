"""A device run: its program, its metrics and its checkpoints."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from gunreal.config.derived import rates, replay_steps
from gunreal.config.objective import load_objective
from gunreal.config.schema import Config, ConfigError, is_auto
from gunreal.device import saving, store
from gunreal.device.dqn_program import QProgram
from gunreal.device.environment import check_environment, frames, open_environment
from gunreal.device.program import Program, Turn
from gunreal.device.sharding import Places
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec
from gunreal.learning.jax_learner import JaxLearner
from gunreal.learning.task import AuxiliaryTask
from gunreal.records import checkpoint
from gunreal.runtime import ram
from gunreal.runtime.base import Contents, Status
from gunreal.runtime.system import begin, build_learner, make_metrics
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.self_imitation import SelfImitation

# What to do if the memory is too small. A resumed run keeps the size of its arrays.
_REMEDY = "use more or larger devices, or start a run with lower --agents, --t_max or --replay_size"


def check_device(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> None:
    """Raises ConfigError for an environment or a task that cannot run on a device."""
    places = Places(config)
    objective = load_objective(config)
    if objective.replays and spec.state:
        raise ConfigError(f"{objective.name} needs a network without memory; use another one, or --objective a3c")
    env = open_environment(config, config.agents)
    fields = recorded_fields(tasks, spec)
    convert = frames(config, spec, env.observation_space, fields)
    groups = config.device_batches
    rows = store.ring_size(spec, replay_steps(config), spec.t_max // groups)
    limit = ram.limit() if is_auto(config, "memory_limit") else config.memory_limit
    _check_memory(jax.eval_shape(lambda: store.blank(spec, rows, groups, config.agents, fields)), places, limit)
    check_environment(config, env, config.agents)
    jax.eval_shape(lambda seeds: convert(env.init(seeds)[1]), np.zeros(config.agents, np.int32))
    for task in tasks:
        if task.source(spec):
            fix = "leave it out of device runs, or use --runner parallel"
            raise ConfigError(f"task {task.name!r} learns from a recording; {fix}")
        if not objective.has_policy and isinstance(task, SelfImitation):
            name = objective.name
            raise ConfigError(f"task {task.name!r} needs a policy, which {name} does not have; use --objective ppo")


def make_program(
    config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], resumed: checkpoint.Checkpoint | None = None
) -> tuple[Program, JaxLearner, Places]:
    """The program of a run, its learner with new weights or those of a checkpoint, and the places of arrays."""
    learner = build_learner(config, spec, tasks)
    assert isinstance(learner, JaxLearner)
    begin(learner, config, resumed)
    env = open_environment(config, config.agents)
    places = Places(config)
    learner.replace(jax.device_put(learner.arrays, places.whole))
    convert = frames(config, spec, env.observation_space, recorded_fields(tasks, spec))
    program = QProgram if learner.objective.replays else Program
    return program(config, spec, tasks, learner, env, convert, places), learner, places


class DeviceRunner(Status):
    """The `Runner` of device runs. The host only starts turns and reads their metrics.

    The metrics of a turn are read while the next one runs.
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        tasks: tuple[AuxiliaryTask, ...],
        resumed: checkpoint.Checkpoint | None,
    ):
        self.program, self.learner, places = make_program(config, spec, tasks, resumed)
        self._spec = spec
        self._memory_limit = config.memory_limit
        _check_memory(self.program.shapes, places, config.memory_limit)
        with _enough_memory():
            self.loop = saving.restored(self.program, spec, resumed.state) if resumed else self.program.start()
        super().__init__(config, make_metrics(tasks, resumed), resumed)
        self._number = int(self.loop.store["end"]) // self.program.block  # of turns
        self._taken = self.metrics.step
        self._infinite = False  # whether a reward was not a finite number
        self._turns: deque[tuple[Turn, float]] = deque()  # not read yet, with their learning rates

    def run(self, tick: Callable[[], None]) -> None:
        """Runs until it is stopped. `tick` is called between turns, about ten times per second.

        Raises:
          AgentFailure: a reward was not a finite number.
        """
        last = 0.0
        while not self.stopped_by:
            with _enough_memory():
                self._turn()
                while len(self._turns) > 1:
                    self._read(*self._turns.popleft())
            if time.monotonic() - last >= 0.1:
                last = time.monotonic()
                tick()
            if self._taken >= self.config.steps:
                self.stop("steps")
            self._check_rewards()
        self.drain_episodes()
        self._check_rewards()

    def _check_rewards(self) -> None:
        if self._infinite:
            raise AgentFailure(
                f"{self.config.env} returned a reward that is not finite; rewards must be finite numbers"
            )

    def _turn(self) -> None:
        config, program = self.config, self.program
        now = rates(config, self._taken)
        exploration = self.learner.objective.exploration(self._taken / config.steps)
        self._taken += config.agents * program.block
        self.loop, turn = program.turn(self.loop, self._number, now, exploration)
        self._turns.append((turn, now.learning_rate))
        self._number += 1

    def _read(self, turn: Turn, rate: float) -> None:
        """Adds the metrics of a turn, once it has ended."""
        scores, metrics, lags = jax.device_get((turn.scores, turn.metrics, turn.lags))
        self.metrics.acted(scores.size)
        for _ in scores:
            self.metrics.predicted("base", scores.shape[1])
        self._infinite |= bool(np.isinf(scores).any())
        for score in scores[np.isfinite(scores)].tolist():
            self.metrics.episode(score)
        config, program = self.config, self.program
        each = config.agents // program.groups * config.t_max // program.parts
        for number, (update, lag, kind) in enumerate(zip(metrics, lags, turn.kinds, strict=True)):
            scalars = update.floats()
            skipped, lag = scalars.pop("skipped") > 0, lag[lag >= 0]
            if kind == "phase":
                scalars = {f"phase_{name}": value for name, value in scalars.items()}
            scalars |= {"learning_rate": rate}
            if self.learner.objective.replays:
                new = 0 if number else config.agents * program.block
                self.metrics.trained(new, lag, scalars, skipped, len(lag))
                continue
            new = each * len(lag) // config.t_max if number < program.parts else 0  # the first epoch comes first
            self.metrics.trained(new, lag, scalars, skipped, each)

    def drain_episodes(self) -> None:
        """Reads the metrics of all turns."""
        while self._turns:
            self._read(*self._turns.popleft())

    def snapshot(self) -> dict[str, Any]:
        """One line of metrics for the time since the last one."""
        gauges = {"agents": self.config.agents, "predictors": 1, "trainers": 1}
        gauges |= {"memory_bytes": ram.in_use([os.getpid()]), "memory_limit": self._memory_limit}
        return self.metrics.snapshot(gauges, {})

    def contents(self) -> Contents:
        """What an exact resume needs: the environments and their steps. Of a large replay, the newest rollouts only."""
        self.drain_episodes()
        return Contents(self.state() | saving.arrays(self.program, self._spec, self.loop))

    def state(self) -> dict[str, np.ndarray]:
        """Copies the state of the learner."""
        self.learner.replace(self.learner.arrays, int(self.loop.version))
        return self.learner.get_state()

    def close(self) -> None:
        """Does nothing, because the arrays are freed with this object."""


def _check_memory(shapes: Any, places: Places, memory_limit: int) -> None:
    """Raises ConfigError if arrays of these shapes do not fit into the memory of the devices."""
    stats = jax.local_devices()[0].memory_stats() or {}
    room = stats["bytes_limit"] * places.count if "bytes_limit" in stats else memory_limit
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if size > room:
        sizes = f"{size / 2**30:.1f} GiB of the devices' {room / 2**30:.1f} GiB"
        raise ConfigError(f"the agents take {sizes}; {_REMEDY}")


@contextlib.contextmanager
def _enough_memory() -> Iterator[None]:
    """Turns the error of a full device to one line."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ConfigError(f"the memory of the device is full; {_REMEDY}") from error
