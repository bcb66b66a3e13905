"""The parts of a run, connected in one place, and the operations shared by serial and parallel runs."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Self

import numpy as np

from gunreal.acting.agent import Outbox, group_slices
from gunreal.acting.pool import Member, Pool, close_all
from gunreal.acting.predictor import BasePredictor, TaskPredictor
from gunreal.config.derived import largest_divisor, rollouts_per_batch
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience import queues, seeds
from gunreal.experience.replay import blank_past
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec
from gunreal.experience.waits import Reader
from gunreal.learning import devices
from gunreal.learning.backend import make_learner
from gunreal.learning.learner import Learner
from gunreal.learning.registry import load_network
from gunreal.learning.task import BASE, AuxiliaryTask, prediction_heads
from gunreal.records import checkpoint
from gunreal.records.metrics import RunMetrics
from gunreal.runtime import memory, ram, starting
from gunreal.runtime.base import Contents, Status
from gunreal.runtime.trainer import Batcher, Trainer
from gunreal.tasks import calls
from gunreal.tasks.recorded import tasks_of_agents


def on_this_machine(config: Config) -> Config:
    """Loads the framework, and chooses the settings of the machine that are still "auto"."""
    devices.select_for(config)
    return resolved(config, Facts(cores=devices.cores(), memory=ram.limit(), has_gpu=devices.has_gpu()))


def build_learner(config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], seed: int | None = None) -> Learner:
    """Builds the network on its accelerator, with weights newly initialized from `seed`, by default the run's."""
    devices.select_for(config)
    from gunreal.learning.network import Network  # Keras loads the backend that was just selected

    network = Network(
        spec,
        tasks,
        load_network(config, spec),
        data_format=devices.data_format(config.layout),
        precision=config.precision,
        normalize_observations=config.normalize_observations,
        normalize_returns=config.normalize_returns,
        seed=config.seed if seed is None else seed,
        fuse=None if devices.has_gpu() else devices.fused,  # on a GPU the plain pass is faster than fusing
        side_by_side=devices.side_by_side(),
    )
    return make_learner(network, config)


def make_layout(config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], learner: Learner) -> Layout:
    """The memory layout of one agent process: rings with the recorded fields, and mailboxes of the tasks."""
    layout = memory.rings(config, spec, tasks)
    mailboxes: dict[str, tuple[tuple[int, ...], str]] = {}
    for task in tasks_of_agents(tasks, spec):
        shape, draws = None, task.per_rollout
        if task.bootstrap is not None:
            (bootstrap,) = learner.predict(task.name, np.zeros((1, *spec.observation), spec.dtype), blank_past(spec, 1))
            shape = bootstrap.shape[1:]
            mailboxes[f"{task.name}.bootstrap_step"] = ((draws,), "int64")
            mailboxes[f"{task.name}.bootstrap"] = ((draws, *shape), "float32")
        mailboxes[f"{task.name}.sequence"] = ((layout.slots, draws, 2), "int64")
        for name, (target_shape, dtype) in calls.target_arrays(task, spec, shape).items():
            mailboxes[f"{task.name}:{name}"] = ((layout.slots, draws, *target_shape), dtype)
    return layout._replace(mailboxes=mailboxes)


def make_metrics(tasks: tuple[AuxiliaryTask, ...], resumed: checkpoint.Checkpoint | None) -> RunMetrics:
    """The metrics of a run with these tasks, which go on from a checkpoint."""
    losses = ("base", *(task.name for task in tasks))
    return RunMetrics(prediction_heads(tasks), losses, resumed.extra["metrics"] if resumed else None)


def begin(learner: Learner, config: Config, resumed: checkpoint.Checkpoint | None) -> None:
    """Gives a new learner the state of the checkpoint, or the weights of the run that `init` names, if there is one.

    Raises:
      ConfigError: it does not exist or does not fit the network.
    """
    if resumed is None:
        if config.init:
            heads = [task.name for task in learner.network.tasks]
            learner.set_state(starting.adopt(learner.get_state(), starting.load(config), heads, config))
        return
    try:
        learner.set_state(resumed.learned())
    except ValueError as error:
        raise unfit(resumed, str(error)) from error


def unfit(resumed: checkpoint.Checkpoint, why: str) -> ConfigError:
    """The error for a checkpoint whose arrays have other names or shapes than those of the run."""
    return ConfigError(
        f"the environment, the network or a task has changed since {resumed.path}: {why}; install the former version, "
        "or start a new run"
    )


def next_process(resumed: checkpoint.Checkpoint, agents: int) -> int:
    """The first number of a process of `agents` agents with which no agent has the seeds of one before the resume.

    The same holds for a node to which `agents` numbers are reserved.
    """
    saved = resumed.extra["config"]
    before = resumed.extra["processes"] * largest_divisor(saved["agents"], saved["agents_per_process"])
    return -(-before // agents)


class System(Status):
    """The parts of a run on one machine. Its runner decides when to call them.

    `weights_seed` is that of the initial weights, by default the run's.
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        tasks: tuple[AuxiliaryTask, ...],
        resumed: checkpoint.Checkpoint | None,
        weights_seed: int | None = None,
    ):
        self.spec, self.tasks = spec, tasks
        self.learner = build_learner(config, spec, tasks, weights_seed)
        self.layout = make_layout(config, spec, tasks, self.learner)
        begin(self.learner, config, resumed)
        super().__init__(config, make_metrics(tasks, resumed), resumed)
        first = next_process(resumed, self.layout.agents) if resumed and config.runner != "serial" else 0
        share = 0.25 if self.learner.objective.uses().is_once else 1.0  # many updates per batch make other rollouts old
        self.pool = Pool(rollouts_per_batch(config), first, share)
        heads = prediction_heads(tasks)
        self.requests = {head: queues.Pipe(queues.REQUEST) for head in heads}
        self.rollouts, self.episodes = queues.Pipe(queues.ROLLOUT), queues.Pipe(queues.EPISODE)
        self.outbox = Outbox(
            tuple(pipe.write_fd for pipe in self.requests.values()), self.rollouts.write_fd, self.episodes.write_fd
        )
        seed = [config.seed, self.metrics.step, 0, seeds.ACTIONS]  # a resumed run samples other actions
        self.predictors: dict[str, BasePredictor | TaskPredictor] = {
            "base": BasePredictor(self.pool, self.learner, seed)
        }
        for queue, head in enumerate(heads):
            if queue != BASE:
                self.predictors[head] = TaskPredictor(self.pool, self.learner, head, queue)
        self.batcher = Batcher(self.pool, config, spec, tasks, self.rollouts)
        # More would not be faster. A GPU computes one update at a time while a second trainer prepares its batch.
        self.at_once = 1 if devices.has_gpu() else devices.cores()
        self.trainer = Trainer(self.learner, config, self.metrics, self.at_once, self._hurried)
        largest = max(group.stop - group.start for group in group_slices(self.layout.agents))
        self.groups_at_once = max(1, config.max_batch // largest)  # groups whose observations fit into one prediction
        self.memory_limit = config.memory_limit
        self._waits = Reader()

    def _hurried(self) -> bool:
        """Whether trainers leave their batches unfinished. A serial run finishes them, because it goes on exactly."""
        return self.in_haste and self.config.runner != "serial"

    def warm_up(self) -> None:
        """Compiles the updates with a blank batch. Call it before predictors and trainers start."""
        with contextlib.closing(Member(0, self.layout)) as blank:
            taken = [(blank, i % self.layout.agents, 0) for i in range(self.batcher.rollouts)]
            self.trainer.warm_up(self.batcher.gather(taken))

    def predict(self, queue: str, records: np.ndarray) -> None:
        """Serves requests of a prediction queue. Those of the base queue count as agent steps of the run."""
        count = self.predictors[queue].serve(records)
        if count:  # no prediction is made while no agent has a sequence
            self.metrics.predicted(queue, count)
        if queue == "base":
            self.metrics.acted(count)
            if self.metrics.step >= self.config.steps:
                self.stop("steps")

    def drain_episodes(self) -> None:
        """Adds finished episodes to the metrics."""
        while scores := self.episodes.get(4096, 0).tolist():
            for score in scores:
                self.metrics.episode(score)

    def gauges(
        self, agents: int, predictors: int, trainers: int, memory_bytes: int
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The present state of the run, as `RunMetrics.snapshot` takes it: gauges, and lengths of queues."""
        gauges = {
            "agents": agents,
            "predictors": predictors,
            "trainers": trainers,
            "memory_bytes": memory_bytes,
            "memory_limit": self.memory_limit,
            # A serial run does not wait, and after a resume its rings would still contain old waits.
            "wait_ms": None if self.config.runner == "serial" else self._waits.read(self.pool.waited()).mean_ms(),
        }
        return gauges, {name: len(pipe) for name, pipe in self.requests.items()} | {"train": len(self.rollouts)}

    def close(self) -> None:
        """Stops every agent process and frees all memory."""
        close_all([self.pool.remove(member.process) for member in self.pool.members()])
        for pipe in itertools.chain(self.requests.values(), (self.rollouts, self.episodes)):
            pipe.close()


class SystemRunner:
    """The part of a `Runner` that is the same for all runners with a `System`."""

    def __init__(self, system: System):
        self.system = system

    @classmethod
    def of(
        cls, config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], resumed: checkpoint.Checkpoint | None
    ) -> Self:
        """The runner of a run, with its system."""
        system = System(config, spec, tasks, resumed)
        with contextlib.ExitStack() as failed:
            failed.callback(system.close)
            runner = cls(system)
            failed.pop_all()
        return runner

    @property
    def status(self) -> System:
        """The state of the run."""
        return self.system

    def state(self) -> dict[str, np.ndarray]:
        """Copies the state of the learner."""
        return self.system.learner.get_state()

    def contents(self) -> Contents:
        """The state of the learner for a checkpoint, and how many processes there have been."""
        return Contents(self.state(), {}, {"processes": self.system.pool.next})

    def drain_episodes(self) -> None:
        """Adds finished episodes to the metrics."""
        self.system.drain_episodes()

    def close(self) -> None:
        """Stops every agent process and frees all memory."""
        self.system.close()
