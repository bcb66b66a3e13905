"""A node: the whole system of one machine, except for the optimizer. It sends its gradients to the reducers."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import Any, NamedTuple

import numpy as np

from gunreal.cluster.exchange import Exchange
from gunreal.cluster.flat import bounds
from gunreal.cluster.model import Rows, Rules
from gunreal.cluster.reducer import Refused, check_version
from gunreal.config.derived import Rates
from gunreal.config.schema import Config
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.registry import interface
from gunreal.learning.task import AuxiliaryTask, of_tasks
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System, on_this_machine
from gunreal.runtime.trainer import Trainer
from gunreal.tasks import registry

_ENDLESS = 2**62  # agent steps; the coordinator counts those of all nodes and ends the run


class Assignment(NamedTuple):
    """What a node needs to start.

    Attributes:
      fields: configuration of the node.
      seed: seed of the run, from which every node draws the same initial weights. `fields` has the node's own seed.
      sharing: number of nodes that share the memory limit of the machine.
    """

    version: str
    fields: dict[str, Any]
    spec: Spec
    seed: int
    sharing: int


class Description(NamedTuple):
    """What a node reports when it has started.

    Attributes:
      state: `Learner.get_state` before training.
    """

    state: dict[str, np.ndarray]
    rules: Rules
    pid: int


class Answer(NamedTuple):
    """What a node reports with a gradient.

    Attributes:
      used: whether there is a gradient. There is none if it was not finite.
      untrained: `Contribution.untrained`.
      size: number of agent steps in the batch.
      seconds: time that the node took for the gradient.
      bytes: size of the gradient and of `untrained`.
      counted: `RunMetrics.take`.
    """

    used: bool
    untrained: dict[str, np.ndarray]
    size: int
    seconds: float
    bytes: int
    counted: dict[str, Any]


class Node:
    """One node. A process of Ray runs it, as an actor that answers `gauges` while `gradient` waits."""

    def __init__(self) -> None:
        self._system: System | None = None

    def start(self, told: Assignment) -> Description:
        """Starts agents, predictors and trainers.

        Raises:
          Refused: this machine has another version, or another environment.
          ConfigError: the configuration cannot run on this machine.
        """
        config, spec, tasks = _checked(told)
        system = System(config, spec, tasks, None, told.seed)
        state, rules = system.learner.get_state(), Rules.of(system.learner)
        self._exchange = Exchange(system.learner, Rows(state, rules.averages), config.gradient_dtype)
        system.trainer = Trainer(self._exchange, config, system.metrics, system.at_once)
        self._runner = ParallelRunner(system)
        self._system = system
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self._thread.start()
        return Description(state, rules, os.getpid())

    def _run(self) -> None:
        assert self._system is not None
        try:
            self._runner.run(lambda: None)
        except BaseException as error:  # noqa: BLE001  the coordinator is told with the next gradient
            self._system.fail(error)
        self._exchange.leave()

    def gradient(
        self, version: int, now: Rates, untrained: dict[str, np.ndarray], *weights: np.ndarray
    ) -> tuple[Any, ...]:
        """Computes a gradient with the next batch. `Exchange.assign` describes the arguments.

        Returns:
          An `Answer`, then as many slices of the gradient.
        """
        assert self._system is not None
        self._exchange.assign(weights, untrained, version, now)
        try:
            found = self._exchange.ask()
        except BaseException:
            if self._system.failure:
                raise self._system.failure from None
            raise
        self._system.drain_episodes()
        gradient = np.zeros(0, np.float32) if found.gradient is None else found.gradient
        size = gradient.nbytes + sum(array.nbytes for array in found.untrained.values())
        counted = self._system.metrics.take()
        answer = Answer(found.gradient is not None, found.untrained, found.size, found.seconds, size, counted)
        return answer, *(gradient[part] for part in bounds(len(gradient), len(weights)))

    def gauges(self) -> tuple[dict[str, Any], dict[str, int]] | None:
        """`ParallelRunner.gauges`, as a sign of life. None before the node has started."""
        return self._runner.gauges() if self._system else None

    def stop(self) -> None:
        """Ends all agent processes."""
        if self._system:
            self._system.stop("cluster")
            self._exchange.leave()
            self._thread.join(5.0)
            self._system.close()
            self._system = None


def _checked(told: Assignment) -> tuple[Config, Spec, tuple[AuxiliaryTask, ...]]:
    """The configuration of the node with its share of the memory limit, the environment's interface, and the tasks."""
    check_version(told.version)
    try:
        config = Config(**told.fields)
    except TypeError as error:
        raise Refused(f"its gunreal has another configuration ({error}); install the same on all machines") from error
    devices.check_installed(config.backend)
    with devices.preferred(config.backend):
        tasks = registry.load_tasks(config.tasks, config.task)
    spec, _, config = interface(config)
    spec = of_tasks(spec, tasks)
    different = [name for name in Spec._fields if getattr(spec, name) != getattr(told.spec, name)]
    if different:
        name = different[0]
        raise Refused(
            f"its {config.env} has {name} {getattr(spec, name)} instead of {getattr(told.spec, name)}; "
            "install the same environment on all machines"
        )
    config = on_this_machine(config)
    return dataclasses.replace(config, memory_limit=config.memory_limit // told.sharing), spec, tasks


def node_fields(config: Config, serial: int) -> dict[str, Any]:
    """The configuration of a node, whose number `serial` no other has had. Seeds depend on it; node 0 has the run's."""
    seed = int(np.random.SeedSequence([config.seed, serial]).generate_state(1)[0] >> 1) if serial else config.seed
    # The weights come from the reducers, also those of the run that `init` names.
    return dataclasses.asdict(dataclasses.replace(config, seed=seed, steps=_ENDLESS, init=""))
