"""The network: a torso shared by all tasks, the policy and value layers, and the heads of the tasks."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning import heads
from gunreal.learning.architecture import Architecture
from gunreal.learning.average import Average
from gunreal.learning.building import computing, isolated, seeded
from gunreal.learning.net import AverageNet, Net
from gunreal.learning.normalizer import Moments, Statistics
from gunreal.learning.objective import Objective
from gunreal.learning.policy_value import PolicyValue
from gunreal.learning.task import AuxiliaryTask
from gunreal.learning.torso import Features, Torso


class Network:
    """The torso, the policy and value layers, and the heads of the tasks.

    The initial weights of torso, policy and value depend on `seed` alone. The weights of a head depend on `seed` and
    the name of its task. Runs with different tasks therefore start from the same torso.

    Attributes:
      tasks: the auxiliary tasks, in the order of their rows in a batch.
      lengths: number of rows of a base rollout ("base") and of a sequence of each task, by name.
      trainable_variables: variables of the torso, policy, value and heads.
      names: unique names of `trainable_variables`, such as "torso/conv1/kernel" or "pc/0/kernel". They are the same in
        every process.
      policy_value: the layers of the actor-critic. Call it with hidden features.
      statistics: running moments by name, "observation", "vector", "return" and "bonus_return".
      untrained: the variables that gradients do not train, by unique names such as "statistics/return/mean": those of
        `statistics`, and the averages and the arrays that tasks ask for.
    """

    @isolated()
    def __init__(
        self,
        spec: Spec,
        tasks: Sequence[AuxiliaryTask],
        architecture: Architecture,
        *,
        data_format: str = "channels_last",
        precision: str = "float32",
        normalize_observations: str = "off",
        normalize_returns: bool = False,
        seed: int = 0,
        fuse: Callable[..., Any] | None = None,
        side_by_side: bool = False,
    ):
        """Builds all layers.

        Args:
          spec: shapes and constants. Observations are `[N, *spec.observation]` of dtype `spec.dtype`. uint8 is scaled
            to [0, 1] inside the network.
          data_format: layout of the convolutions, "channels_first" or "channels_last". Observations are always NCHW.
          precision: precision of the layers, "float32" or "bfloat16". Weights, outputs and losses are float32.
          normalize_observations: whether to normalize by the moments of every "element" of a frame or of every
            "channel", or "off".
          normalize_returns: whether the value layer learns returns with mean 0 and standard deviation 1.
          fuse: function that compiles a function of arrays to a single pass over them. None does not compile.
          side_by_side: whether the parts of a batch pass through the torso separately and in parallel.

        Raises:
          ConfigError: the architecture or a head cannot be used.
        """
        self.spec, self.tasks, self._seed, self._side_by_side = spec, tuple(tasks), seed, side_by_side
        self.lengths = {"base": spec.t_max, **{task.name: task.length(spec.t_max) for task in self.tasks}}
        with computing(precision):
            self.torso = Torso(spec, architecture, data_format, normalize_observations, seed, fuse)
        self._unrolls = {"base", *(task.name for task in self.tasks if task.features != "conv")}
        depth = len(self.torso.layers) - self.torso.recurrent  # so that "small" and "lstm" get the same seeds
        self.policy_value = PolicyValue(spec, normalize_returns, seed + depth)
        self.statistics: dict[str, Statistics] = {**self.torso.statistics, **self.policy_value.statistics}
        self._heads: dict[str, Any] = {}
        features = Features(*(keras.KerasTensor((None, width)) for width in self.torso.widths))
        self.policy_value(features.hidden)
        self.trainable_variables: list[Any] = []
        self.names: list[str] = []
        layers = {f"torso/{name}": layer for name, layer in self.torso.layers.items()}
        for prefix, layer in (layers | self.policy_value.layers).items():
            self._track(prefix, layer)
        heads.check_stateless("torso", self.torso.model)  # also its layers without weights
        self._averages: dict[str, Average] = {}
        self._states: dict[str, dict[str, Any]] = {}
        for task in self.tasks:
            with computing(precision):
                self._build_head(task, features, seed)
        self.untrained: dict[str, Any] = {
            f"statistics/{name}/{part}": variable
            for name, statistics in self.statistics.items()
            for part, variable in zip(Moments._fields, statistics.variables, strict=True)
        }
        for name, average in self._averages.items():
            self.untrained |= {f"average/{name}/{weight}": kept for weight, kept in average.variables.items()}
        for name, state in self._states.items():
            self.untrained |= {f"state/{name}/{part}": variable for part, variable in state.items()}

    @property
    def variables(self) -> dict[str, Any]:
        """All variables, those that gradients train first, by their names in `Learner.get_state`."""
        weights = zip(self.names, self.trainable_variables, strict=True)
        return {f"weights/{name}": variable for name, variable in weights} | self.untrained

    def _track(self, prefix: str, layer: Any) -> None:
        heads.check_stateless(prefix, layer)
        names = [variable.name for variable in layer.trainable_variables]
        unique = len(set(names)) == len(names)  # not in a layer that is made of layers
        self.names += [f"{prefix}/{name}" if unique else f"{prefix}/{place}/{name}" for place, name in enumerate(names)]
        self.trainable_variables += layer.trainable_variables

    def _build_head(self, task: AuxiliaryTask, features: Features, seed: int) -> None:
        with seeded(zlib.crc32(f"{seed}/{task.name}".encode())):
            head = self._heads[task.name] = heads.build(task, self.spec, features)
        # Keras numbers layers with a counter per process, so a head's variables are named by their position.
        for place, variable in enumerate(() if head is None else head.trainable_variables):
            self.names.append(f"{task.name}/{place}/{variable.name}")
            self.trainable_variables.append(variable)
        with seeded(zlib.crc32(f"{seed}/{task.name}/state".encode())):
            self._states[task.name] = heads.state(task, self.spec)
        if task.average:
            heads.check_average(task, head)
            weights = zip(self.names, self.trainable_variables, strict=True)
            averaged = {name: weight for name, weight in weights if name.split("/")[0] in ("torso", task.name)}
            self._averages[task.name] = Average(averaged, task.average)

    def task_outputs(self, task: AuxiliaryTask, features: Features, **given: Any) -> Any:
        """The outputs of a task `[B, T, ...]` for features `[B, T, F]`. `heads.outputs` describes what may be given."""
        head = self._heads[task.name]
        if head is None:
            return self.policy_value(features.hidden)
        return heads.outputs(task, head, features, **given)

    @isolated()
    def predict(self, head: str, observations: Any, past: Past | None = None) -> tuple[Any, ...]:
        """Predictions for single states, as agents request them.

        Args:
          head: "base", "bonus", or the name of a task with a bootstrap.
          observations: `[N, *spec.observation]`. For "bonus", those of `spec.acting`.
          past: `[N, ...]` with one step each, for a recurrent network, with vectors beside images, or as in
            `spec.acting`.

        Returns:
          For "base", `(logits [N, A], value [N])`. "bonus" adds the sum of the bonuses of tasks `[N]` and their value
          `[N]`, if they have one, and a recurrent network the state after the observation `[N, spec.state]`. For a
          task, `(bootstrap [N, ...],)`.
        """
        seen = [observations]
        if head == "bonus" and self.spec.bonus_steps == 2:
            size = self.spec.frame[0]
            seen = [observations[:, :-size], observations[:, size:]]
        features = self._each(seen[-1], past)
        state: list[Any] = []
        if self.torso.recurrent:
            assert past is not None
            hidden, *state = self.torso.unroll(features.hidden, past)
            features = features._replace(hidden=hidden)
        if head not in ("base", "bonus"):
            task = next(task for task in self.tasks if task.name == head)
            return (heads.bootstrap(task, self.task_outputs(task, features)),)
        outputs = self.policy_value(features.hidden)
        found = [outputs["logits"][:, 0], outputs["value"][:, 0]]
        if head == "bonus":
            found.append(self._bonus(seen, past, features))
            found += [outputs["bonus_value"][:, 0]] if self.spec.bonus_discount else []
        return *found, *state

    def _each(self, observations: Any, past: Past | None) -> Features:
        """The features of single observations as those of sequences of one step, without the recurrence."""
        return Features(*(ops.expand_dims(x, 1) for x in self.torso.features(observations, self._vectors(past))))

    def _bonus(self, seen: Sequence[Any], past: Past | None, features: Features) -> Any:
        """The sum of the bonuses of all tasks `[N]`.

        Args:
          seen: the observations, after those of the step before if tasks ask for them.
          past: the past of the observations.
          features: their features, as those of sequences of one step.
        """
        pairs, led, is_first = features, {}, False
        if len(seen) == 2:
            assert past is not None
            before, action = self._each(seen[0], past), past.last_action
            if self.torso.recurrent:
                before = before._replace(hidden=self.torso.last_output(past))
            pairs = Features(*(ops.concatenate(x, axis=1) for x in zip(before, features, strict=True)))
            led = {"batch": {"action": ops.pad(ops.maximum(action, 0), ((0, 0), (0, 1)))}}
            is_first = action[:, 0] < 0
        total = ops.zeros(ops.shape(features.hidden)[:1])  # without the tasks, as in evaluations
        for task in (task for task in self.tasks if task.bonus is not None):
            net = self._net(task, {"observations": ops.stack(seen[-task.bonus_steps :], axis=1), "past": past}, 0)
            of_steps, batch = (features, {}) if task.bonus_steps == 1 else (pairs, led)
            bonus = heads.bonus(task, self.task_outputs(task, of_steps, net=net, **batch), seen[-1], net.state)
            total += bonus if task.bonus_steps == 1 else ops.where(is_first, 0.0, bonus)
        return total

    def _state(self, task: AuxiliaryTask) -> dict[str, Any]:
        return {name: ops.convert_to_tensor(array.value) for name, array in self._states[task.name].items()}

    @isolated()
    def loss(
        self,
        batch: Mapping[str, Any],
        objective: Objective,
        *,
        entropy: Any,
        progress: Any = 0.0,
        version: Any = 0,
        value_weight: float,
    ) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The total loss, `base + sum(weight_i * loss_i)` (UNREAL, eq. 4).

        The batch is a dict of parts. It may leave out tasks, which are then not learned from:

        - "base": the objective's part, with "action" int32 `[B, T]` and "mask" float32 `[B, T]`.
        - the name of each task: its targets with a leading batch axis, and "mask" `[B, T_i]`.
        - "old", in the objective's further phase: what `recall` returned for it before the phase.

        "base" and those of the tasks also have "observations" `[B, T_i, *spec.observation]` and, if the network is
        recurrent or there are vectors beside images, their `Past` as "past".

        Args:
          batch: the batch.
          objective: the objective.
          entropy: weight of the policy's entropy (beta).
          progress: share of the training budget that has been used, for the tasks as "progress".
          version: number of updates so far, from which heads draw their random numbers.
          value_weight: weight of the value loss.

        Returns:
          The total loss, and scalars by metric name. `loss_<task>` is unweighted. `<task>_<metric>` are the task's own.
          "priority/<task>" has the priorities of its steps, `[B, T]`. Then the new arrays of tasks, by their names in
          `untrained`, and the terms of the total by name: "base", and those of the tasks.
        """
        base, features = _targets(batch["base"]), self._features(batch)
        states: dict[str, Any] = {}
        scalars = {"entropy": entropy, "value_weight": value_weight, "progress": ops.cast(progress, "float32")}
        hidden = features["base"].hidden
        if "old" in batch:
            old = {f"old_{name}": array for name, array in batch["old"].items()}
            total, metrics = objective.phase_loss(self.policy_value(hidden), {**base, **scalars, **old})
        else:
            total, metrics = objective.loss(objective.outputs(self.policy_value, hidden), {**base, **scalars})
        terms = {"base": total}
        for task in self.tasks:
            if task.name not in batch:
                continue
            _, (loss, own, new) = self._learned(task, batch[task.name], features, scalars["progress"], version)
            metrics |= {f"loss_{task.name}": loss, **own}
            states |= {f"state/{task.name}/{name}": array for name, array in new.items()}
            terms[task.name] = task.weight * loss
            total = total + terms[task.name]
        return total, {**metrics, "loss_total": total}, states, terms

    def _learned(
        self,
        task: AuxiliaryTask,
        part: Mapping[str, Any],
        features: Mapping[str, Features],
        progress: Any,
        version: Any,
    ) -> tuple[Any, Any]:
        """The outputs of a task for its part of a batch, and what `heads.loss` returns for them."""
        seen, net = _for(task, features[task.name]), self._net(task, part, version)
        targets = {**_targets(part), "progress": progress, **({"state": net.state} if net.state else {})}
        outputs = self.task_outputs(task, seen, batch=targets, net=net)
        return outputs, heads.loss(task, outputs, targets)

    @isolated()
    def look(self, batch: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """What the tasks find in a batch of `loss`, of which "base" may be left out.

        Returns:
          For each task of the batch, "outputs", those of its head for the first sequence `[T, ...]` (empty without a
          head), and "loss".
        """
        features, found = self._features(batch), {}
        for task in self.tasks:
            if task.name in batch:
                outputs, (loss, *_) = self._learned(task, batch[task.name], features, ops.cast(0.0, "float32"), 0)
                own = {} if self._heads[task.name] is None else outputs
                first = keras.tree.map_structure(lambda x: x[0] if len(x.shape) else x, own)
                found[task.name] = {"outputs": first, "loss": loss}
        return found

    @isolated()
    def features(self, observations: Any) -> Any:
        """The features of policy and value `[N, F]` for single observations, of a network that needs no past."""
        return self.torso.features(observations).hidden

    @isolated()
    def recall(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The "logits" `[B, T, A]` and the "value" `[B, T]` of a batch of `loss`."""
        outputs = self.policy_value(self._features(batch)["base"].hidden)
        return {name: outputs[name] for name in ("logits", "value")}

    def moments(self, batch: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Moments]:
        """The moments of a batch, by the names of `statistics`.

        Args:
          batch: the batch of `loss`.
          metrics: the metrics that `loss` returned for it.
        """
        found: dict[str, Moments] = {}
        weight = ops.reshape(batch["base"]["mask"], (-1,))
        if self.torso.statistics:
            base = batch["base"]
            found |= self.torso.moments(self._rows(base["observations"]), weight, self._vectors(base.get("past")))
        return found | self.policy_value.moments(weight, metrics)

    def absorbed(self, moments: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """The variables that change after an optimizer's step, with their new values.

        A batch's `moments` are added to `statistics`, arrays of tasks are replaced, and averages follow the weights.
        """
        changed = self.policy_value.absorbed(moments)
        for name, statistics in self.torso.statistics.items():
            changed += zip(statistics.variables, statistics.merged(moments[name]), strict=True)
        changed += [(self.untrained[name], array) for name, array in moments.items() if name in self.untrained]
        for average in self._averages.values():
            changed += average.moved()
        return changed

    def _net(self, task: AuxiliaryTask, part: Mapping[str, Any], version: Any) -> Net:
        length, name, past = part["observations"].shape[1], task.name, part.get("past")

        def features(observations: Any, fused: bool = True) -> Any:
            if tuple(observations.shape[1:]) != (length, *self.spec.observation):
                wanted = ", ".join(map(str, (length, *self.spec.observation)))
                raise ValueError(f"net.features() got observations {list(observations.shape)}; give it [B, {wanted}]")
            found = _sequences(self.torso.features(self._rows(observations), self._vectors(past), fused), length)
            if past is not None and self.torso.recurrent and name in self._unrolls:
                found = found._replace(hidden=self.torso.unroll(found.hidden, past)[0])
            return heads.seen(task, _for(task, found))

        average = None
        if name in self._averages:
            moments = [variable for statistics in self.statistics.values() for variable in statistics.variables]
            scope = functools.partial(self._averages[name].replacing, moments)
            # A function that is compiled in a scope would keep the values of that scope.
            average = AverageNet(scope, functools.partial(features, fused=False), self._heads[name])
        seen = ops.convert_to_tensor(part["observations"])
        return Net(seen, features, self.policy_value, average, self._state(task), f"{self._seed}/{name}", version)

    def parts(self, batch: Mapping[str, Any]) -> list[str]:
        """The names of the parts of a batch that have observations, in the order of the network."""
        return [name for name in self.lengths if name in batch]

    def _rows(self, observations: Any) -> Any:
        return ops.reshape(observations, (-1, *self.spec.observation))

    def _vectors(self, past: Past | None) -> Any:
        """The vectors beside images `[N, spec.vectors]`, or None if there are none."""
        return ops.reshape(past.vector, (-1, self.spec.vectors)) if past is not None and self.spec.vectors else None

    def _features(self, batch: Mapping[str, Any]) -> dict[str, Features]:
        """The features of each part `[B, T_i, F]`, from one pass or from parallel passes per part."""
        names = self.parts(batch)
        rows = [self._rows(batch[name]["observations"]) for name in names]
        vectors = [self._vectors(batch[name].get("past")) for name in names]
        if self._side_by_side:
            found = [self.torso.features(*part) for part in zip(rows, vectors, strict=True)]
        else:
            together = ops.concatenate(vectors) if self.spec.vectors else None
            whole = self.torso.features(ops.concatenate(rows), together)
            ends = itertools.accumulate((ops.shape(part)[0] for part in rows), initial=0)
            found = [Features(*(x[start:end] for x in whole)) for start, end in itertools.pairwise(ends)]
        features = {name: _sequences(x, self.lengths[name]) for name, x in zip(names, found, strict=True)}
        if not self.torso.recurrent:
            return features
        return self._unrolled(features, {name: batch[name]["past"] for name in names if name in self._unrolls})

    def _unrolled(self, features: Mapping[str, Features], pasts: Mapping[str, Past]) -> dict[str, Features]:
        """The features of the parts after the recurrence. Parts of the same length share one pass."""
        unrolled = dict(features)
        by_length: dict[int, list[str]] = {}
        for name in features:
            if name in pasts:
                by_length.setdefault(self.lengths[name], []).append(name)
        for names in by_length.values():
            past = Past(*(ops.concatenate(x) for x in zip(*(pasts[name] for name in names), strict=True)))
            hidden, _ = self.torso.unroll(ops.concatenate([features[name].hidden for name in names]), past)
            ends = itertools.accumulate((ops.shape(features[name].hidden)[0] for name in names), initial=0)
            for name, (start, end) in zip(names, itertools.pairwise(ends), strict=True):
                unrolled[name] = features[name]._replace(hidden=hidden[start:end])
        return unrolled


def _for(task: AuxiliaryTask, features: Features) -> Features:
    """The features for a task, without a gradient if the task may not train the torso."""
    return features if task.trains_torso else Features(*map(ops.stop_gradient, features))


def _sequences(rows: Features, length: int) -> Features:
    """Features `[B * length, F]` as those of sequences `[B, length, F]`."""
    return Features(*(ops.reshape(x, (-1, length, x.shape[-1])) for x in rows))


def _targets(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the loss of a part uses: all but the inputs of the network, and the places of steps in their replays."""
    return {name: x for name, x in part.items() if name not in ("observations", "past", "cell")}
