"""The compiled program of a device run with DQN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from gunreal.config.derived import Rates
from gunreal.config.schema import Config
from gunreal.device import dqn, rollouts, sequences
from gunreal.device.program import Loop, Program, Turn
from gunreal.experience.spec import Spec
from gunreal.learning.building import isolated
from gunreal.learning.jax_learner import JaxLearner
from gunreal.learning.task import AuxiliaryTask
from gunreal.runtime.trainer import takes_part


class QProgram(Program):
    """The turns of DQN: all agents take `block` steps, and then one group updates with sequences from its replay."""

    def __init__(self, config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask], learner: JaxLearner, *args: Any):
        if learner.objective.priority:
            spec = spec._replace(priorities=(*spec.priorities, "base"))
        super().__init__(config, spec, tasks, learner, *args)
        weights = self._learner.arrays[0]
        self.shapes = self.shapes._replace(target=jax.eval_shape(lambda: weights))
        rows, whole = self._places.agents(0), self._places.whole
        self._draw = jax.jit(isolated()(self._drawn), static_argnums=3, out_shardings=(rows, whole, None, whole))
        self._copy = jax.jit(self._copied, donate_argnums=0, out_shardings=whole)

    def start(self) -> Loop:
        """The state of a new run."""
        return super().start()._replace(target=jax.tree.map(jnp.copy, self._learner.arrays[0]))

    def turn(self, loop: Loop, number: int, rates: Rates, exploration: float = 0.0) -> tuple[Loop, Turn]:
        """See `Program.turn`."""
        config, group, turn = self._config, np.int32(number % self.groups), Turn(None, [], [], [])
        arrays, share = self._learner.arrays, config.task_share if self._tasks else 0.0
        loop, scores = self._act(arrays[0], loop, np.float32(exploration))
        orders, place = np.arange(config.agents // self.groups).reshape(self._orders), np.zeros(2, np.int32)
        for update in range(self._objective.updates):
            with_tasks = takes_part(number * self._objective.updates + update, share)
            present = self._present(0) if with_tasks else ()
            batch, acted, changed, key = self._draw(arrays[0], loop, group, with_tasks)
            arrays, version, metrics, lags = self._update(
                arrays, loop.version, batch, orders, place, acted, np.array(rates, np.float32), present
            )
            target = self._copy(loop.target, arrays[0], version)
            kept, metrics = self._keep(loop.store | changed, metrics, batch, orders, place, group)
            loop = loop._replace(store=kept, version=version, key=key, target=target)
            turn.add(metrics, lags, "tasks" if present else "base")
        self._learner.replace(arrays)
        return loop, turn._replace(scores=scores)

    def _drawn(self, weights: Any, loop: Loop, group: Any, with_tasks: bool) -> tuple[rollouts.Batch, Any, Any, Any]:
        """The batch, the version at each step, the arrays of the store that change, and the next key."""
        config, spec, predict = self._config, self._spec, self._learner.functional_predict
        key, of_base, of_tasks = jax.random.split(jax.random.wrap_key_data(loop.key), 3)
        of_program = self._objective, spec, config.replay_size, predict, weights, loop.target, loop.store, group
        batch, acted, changed = dqn.gather(*of_program, of_base)
        if with_tasks:
            arguments = self._tasks, spec, config.replay_size, predict, weights, loop.store, group, of_tasks
            batch |= sequences.gather(*arguments)
        return batch, acted, changed, jax.random.key_data(key)

    def _copied(self, target: Any, weights: Any, version: Any) -> Any:
        """The target network after an update."""
        due = version % self._objective.target == 0
        return jax.tree.map(lambda old, new: jnp.where(due, new, old), target, weights)
