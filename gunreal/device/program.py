"""The compiled program of a device run: turns of acting, and the updates that follow each."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from gunreal.config.derived import Rates, largest_divisor, replay_steps
from gunreal.config.schema import Config
from gunreal.device import rollouts, sequences, store
from gunreal.device.acting import Acting, Actors
from gunreal.device.environment import Frames
from gunreal.device.sharding import Places
from gunreal.envs.functional import FunctionalEnv
from gunreal.experience import seeds
from gunreal.experience.spec import Spec
from gunreal.learning.building import isolated
from gunreal.learning.jax_learner import JaxLearner
from gunreal.learning.learner import Scalars
from gunreal.learning.minibatches import minibatch, without_tasks
from gunreal.learning.task import AuxiliaryTask
from gunreal.runtime.trainer import takes_part
from gunreal.tasks.recorded import recorded_fields


class Loop(NamedTuple):
    """Everything on the device that changes from turn to turn, besides the weights and the optimizer's state.

    Attributes:
      version: number of updates, int32.
      key: data of the random key for sequences and minibatches.
      target: weights of a target network, or None.
    """

    actors: Actors
    store: store.Store
    version: Any
    key: Any
    target: Any = None


class Turn(NamedTuple):
    """What the host reads of a turn.

    Attributes:
      scores: score of each episode that ended, float32 `[steps, N]`, NaN elsewhere. See `Acting.play`.
      lags: number of updates between acting and each update, int32. There is one for each step of a rollout, or of each
        sequence with DQN. It is -1 for steps before the run.
      kinds: kind of each update: "base", "tasks" (which took part in it) or "phase".
    """

    scores: Any
    metrics: list[Scalars]
    lags: list[Any]
    kinds: list[str]

    def add(self, metrics: Scalars, lags: Any, kind: str) -> None:
        """Adds an update."""
        self.metrics.append(metrics)
        self.lags.append(lags)
        self.kinds.append(kind)


class Program:
    """The turns of a run. In each, all agents take `block` steps, and then one group updates with its newest rollouts.

    A turn is not one compiled call but one for acting and one for each update, because XLA's loops on a CPU compute the
    gradients of convolutions ten times more slowly. The calls are asynchronous, so they cost a GPU nothing.

    Attributes:
      block: number of steps of a turn.
      shapes: shapes and dtypes of the state.
      parts: number of minibatches of an epoch.
      env_version: version of the program on which the states of the environments depend, or "".
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        tasks: Sequence[AuxiliaryTask],
        learner: JaxLearner,
        env: FunctionalEnv,
        frames: Frames,
        places: Places,
    ):
        self._config, self._spec, self._tasks, self._learner, self._places = config, spec, tasks, learner, places
        objective, predict = learner.objective, learner.functional_predict
        self._acting = Acting(config, spec, env, frames, objective, predict, places.divided(env.step))
        self.groups = config.device_batches
        self.block = spec.t_max // self.groups
        size = config.agents // self.groups
        self._objective, uses = objective, objective.uses()
        self.parts = largest_divisor(size, uses.minibatches)
        self._orders = uses.epochs, self.parts, size // self.parts
        self._replay = replay_steps(config)
        self.env_version: str = getattr(env, "version", "")
        self._phase = objective.phase()
        self._kept: list[rollouts.Batch] = []  # batches since the last phase
        self.shapes: Loop = jax.eval_shape(self._start)
        self.places = self._loop_places()
        rows, whole = places.agents(0), places.whole
        self._act = jax.jit(isolated()(self._play), donate_argnums=1, out_shardings=(self.places, places.agents(1)))
        self._gather = jax.jit(isolated()(self._batch), static_argnums=3, out_shardings=(rows, whole, whole, whole))
        self._recall = jax.jit(isolated()(self._recalled), out_shardings=rows)
        self._update = jax.jit(isolated()(self._learn), static_argnums=7, donate_argnums=(0, 1), out_shardings=whole)
        self._report = jax.jit(self._reported, donate_argnums=0, out_shardings=self.places.store)

    def start(self) -> Loop:
        """The state of a new run, in one compiled call."""
        return jax.jit(self._start, out_shardings=self.places._replace(target=None))()

    def _loop_places(self) -> Loop:
        whole, rows, groups = self._places.whole, self._places.agents(0), self._places.agents(2)
        actors = jax.tree.map(lambda _: rows, self.shapes.actors)._replace(key=whole)
        steps = {name: groups if len(array.shape) > 1 else whole for name, array in self.shapes.store.items()}
        return Loop(actors, steps, whole, whole, whole if self._objective.replays else None)

    def _start(self) -> Loop:
        config, spec = self._config, self._spec
        rows = store.ring_size(spec, self._replay, self.block)
        steps = store.blank(spec, rows, self.groups, config.agents, recorded_fields(self._tasks, spec))
        # Below 3, it may be one of the keys of `Acting.start`.
        key = jax.random.key_data(jax.random.fold_in(jax.random.key(config.seed), 3))
        return Loop(self._acting.start(), steps, jnp.int32(0), key)

    def turn(self, loop: Loop, number: int, rates: Rates, exploration: float = 0.0) -> tuple[Loop, Turn]:
        """Takes the turn with this number, from 0. It donates `loop`, and replaces the arrays of the learner."""
        arrays, (epochs, parts) = self._learner.arrays, self._orders[:2]
        share = self._config.task_share if self._tasks else 0.0
        take_part = [takes_part(number * parts + part, share) for part in range(parts)]
        loop, scores = self._act(arrays[0], loop, np.float32(exploration))
        group = np.int32(number % self.groups)
        batch, orders, acted, key = self._gather(arrays[0], loop, group, any(take_part))
        now = np.array(rates, np.float32)
        version, turn = loop.version, Turn(scores, [], [], [])
        usual = [
            (batch, orders, np.array(place, np.int32), acted, self._present(place[0]) if take_part[place[1]] else ())
            for place in np.ndindex(epochs, parts)
        ]
        for told in itertools.chain(usual, self._phase_updates(batch, acted, number)):
            *arguments, present = told
            arrays, version, metrics, lags = self._update(arrays, version, *arguments, now, present)
            self._learner.replace(arrays)
            kept, metrics = self._keep(loop.store, metrics, *arguments[:3], group)
            loop = loop._replace(store=kept)
            turn.add(metrics, lags, "phase" if "old" in told[0] else "tasks" if present else "base")
        return loop._replace(version=version, key=key), turn

    def _keep(self, kept: store.Store, metrics: Scalars, *arguments: Any) -> tuple[store.Store, Scalars]:
        """Moves the priorities of an update from its metrics to the store."""
        if not metrics.priorities:
            return kept, metrics
        return self._report(kept, *arguments, metrics.priorities), dataclasses.replace(metrics, priorities={})

    def _present(self, epoch: int) -> tuple[str, ...]:
        """The names of the tasks that take part in an epoch."""
        return tuple(task.name for task in self._tasks if epoch < task.updates)

    def _phase_updates(self, batch: rollouts.Batch, acted: Any, number: int) -> Iterator[tuple[Any, ...]]:
        """Keeps a batch, and iterates over the arguments of the updates of `Objective.phase` once there are enough."""
        if not self._phase:
            return
        self._kept.append(without_tasks(batch))
        if len(self._kept) < self._phase.batches:
            return
        kept, self._kept = [self._recall(self._learner.arrays[0], each) for each in self._kept], []
        rng = np.random.default_rng([self._config.seed, number, 1, seeds.MINIBATCHES])
        epochs, parts, size = self._orders
        for _ in range(self._phase.epochs):
            for place in rng.permutation(len(kept)):
                order = np.tile(rng.permutation(parts * size).astype(np.int32), epochs).reshape(self._orders)
                for part in range(parts):
                    yield kept[place], order, np.array([0, part], np.int32), jnp.full_like(acted, -1), ()

    def lowered(self) -> dict[str, tuple[jax.stages.Lowered, float]]:
        """The calls of a turn, lowered without a run, and how often a turn makes each of them on average."""
        arrays = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._learner.arrays)
        epochs, parts = self._orders[:2]
        with_tasks = parts * self._config.task_share * max((task.updates for task in self._tasks), default=0)
        gather, has_tasks = (arrays[0], self.shapes, np.int32(0)), bool(self._tasks)
        batch, orders, acted, _ = jax.eval_shape(functools.partial(self._batch, with_tasks=has_tasks), *gather)
        rates = np.zeros(len(Rates._fields), np.float32)
        update = arrays, self.shapes.version, batch, orders, np.zeros(2, np.int32), acted, rates
        found = {
            "act": (self._act.lower(arrays[0], self.shapes, np.float32(0)), 1.0),
            "gather": (self._gather.lower(*gather, has_tasks), 1.0),
        }
        if has_tasks:
            found["update with tasks"] = self._update.lower(*update, self._present(0)), with_tasks
        if with_tasks < epochs * parts:
            found["update"] = self._update.lower(*update, ()), epochs * parts - with_tasks
        return found

    def _play(self, weights: Any, loop: Loop, exploration: Any) -> tuple[Loop, Any]:
        actors, block, scores = self._acting.play(weights, loop.actors, self.block, exploration)
        return loop._replace(actors=actors, store=store.append(loop.store, block, loop.version)), scores

    def _batch(self, weights: Any, loop: Loop, group: Any, with_tasks: bool) -> tuple[rollouts.Batch, Any, Any, Any]:
        """The batch, the rollouts of each minibatch, the version at each step, and the next key."""
        config, spec, predict = self._config, self._spec, self._learner.functional_predict
        batch = rollouts.gather(self._objective, spec, predict, weights, loop.actors, loop.store, group)
        key, of_orders, of_tasks = jax.random.split(jax.random.wrap_key_data(loop.key), 3)
        if with_tasks:
            arguments = self._tasks, spec, self._replay, predict, weights, loop.store, group, of_tasks
            batch |= sequences.gather(*arguments)
        count = config.agents // self.groups
        whole = jnp.arange(count)
        if self._orders[:2] != (1, 1):
            whole = jax.vmap(lambda key: jax.random.permutation(key, count))(
                jax.random.split(of_orders, self._orders[0])
            )
        steps = loop.store["end"] - spec.t_max + jnp.arange(spec.t_max)
        acted = jnp.where(steps < 0, -1, loop.store["version"][steps % len(loop.store["version"])])
        return batch, whole.reshape(self._orders), acted, jax.random.key_data(key)

    def _part(self, batch: rollouts.Batch, orders: Any, place: Any, present: Collection[str]) -> rollouts.Batch:
        """A minibatch with the parts of these tasks."""
        if self._orders[:2] == (1, 1):
            return without_tasks(batch) | {name: batch[name] for name in present}
        updates = {task.name: task.updates for task in self._tasks if task.name in present}
        return self._places.spread(minibatch(batch, orders[place[0], place[1]], place[0], updates))

    def _reported(
        self, kept: store.Store, batch: rollouts.Batch, orders: Any, place: Any, group: Any, priorities: dict[str, Any]
    ) -> store.Store:
        """The store with the priorities that an update has found."""
        needed = ("mask", "cell")
        whole = {name: batch[name] for name in ("base", *priorities)}
        batch = {name: {key: part[key] for key in needed if key in part} for name, part in whole.items()}
        part = self._part(batch, orders, place, priorities)
        for name, found in priorities.items():
            new = store.report(kept, name, group, part[name]["cell"], found, part[name]["mask"])
            kept = {**kept, f"{name}.priority": new}
        return kept

    def _recalled(self, weights: Any, batch: rollouts.Batch) -> rollouts.Batch:
        """A batch with the present outputs for it."""
        return {**batch, "old": self._learner.functional("recall", weights, batch)}

    def _learn(
        self,
        arrays: Any,
        version: Any,
        batch: rollouts.Batch,
        orders: Any,
        place: Any,
        acted: Any,
        rates: Any,
        present: tuple[str, ...],
    ) -> tuple[Any, ...]:
        """One update, in which the tasks with the names `present` take part."""
        batch = self._part(batch, orders, place, present)
        arrays, metrics = self._learner.functional_update(arrays, batch, rates, version)
        lags = jnp.where(acted < 0, -1, version - acted)
        return arrays, version + (metrics["skipped"] == 0), metrics, lags
