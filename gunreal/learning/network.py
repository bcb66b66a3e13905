"""The network: a torso that all tasks share, the actor-critic's two layers on it, and the heads of the tasks."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning.normalizer import Moments, Statistics
from gunreal.learning.objectives import actor_critic_loss
from gunreal.learning.task import LearnedTask
from gunreal.learning.torso import Features, Torso, dense

_LEAST_RETURN_DEVIATION = 0.1  # else the noise of values would be learned from where there are no rewards yet
_RETURNS_REMEMBERED = 100_000.0  # agent steps: returns grow as the policy improves


class Network:
    """Torso, policy, value and the tasks' heads.

    The initial weights of torso, policy and value depend on `seed` alone, and a head's on `seed` and its task's name,
    so that runs with different tasks start from the same torso.

    Attributes:
      spec: shapes and constants.
      tasks: the auxiliary tasks, in the order of their rows in a batch.
      torso: the shared layers.
      lengths: rows of each sequence of the batch: the base rollout's, then each task's.
      trainable_variables: torso, policy, value, heads.
      names: unique names of `trainable_variables`, the same in every process ("torso/conv1/kernel", "pc/0/kernel").
      statistics: running moments that no gradient changes, by name: "observation", "return".
    """

    def __init__(
        self,
        spec: Spec,
        tasks: Sequence[LearnedTask],
        *,
        kind: str = "small",
        first_stride: int = 4,
        hidden: int = 256,
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
          spec: observations are `[N, *spec.observation]` of `spec.dtype`; uint8 is scaled to [0, 1] inside.
          tasks: the auxiliary tasks.
          kind: "small", "large", "lstm" or "mlp"; see `gunreal.learning.torso.Torso`.
          first_stride: of the large network's first convolution.
          hidden: units of the torso's last layer.
          data_format: of the convolutions, "channels_first" or "channels_last"; observations are NCHW in either.
          precision: "float32" or "bfloat16", of what the layers compute; weights, outputs and losses are float32.
          normalize_observations: by the moments of every "element" of a frame or of every "channel", or "off".
          normalize_returns: whether the value learns returns of mean 0 and deviation 1.
          seed: of the initial weights.
          fuse: compiles a function of arrays to a single pass over them; None: it is called as it is.
          side_by_side: whether parts of a batch go through the torso in passes of their own, which run side by side.

        Raises:
          ConfigError: the network does not fit the observations.
          ValueError: a head does not fit.
        """
        self.spec, self.tasks, self._side_by_side = spec, tuple(tasks), side_by_side
        self.lengths = (spec.t_max, *(task.length(spec.t_max) for task in self.tasks))
        with _computing(precision):
            self.torso = Torso(spec, kind, first_stride, hidden, data_format, normalize_observations, seed, fuse)
        self.statistics: dict[str, Statistics] = {}
        if self.torso.statistics:
            self.statistics["observation"] = self.torso.statistics
        if normalize_returns:
            self.statistics["return"] = Statistics((), _LEAST_RETURN_DEVIATION, _RETURNS_REMEMBERED)
        depth = len(self.torso.layers) - self.torso.recurrent  # the same for "small" and "lstm"
        self._policy = dense("policy", spec.num_actions, 0.01, seed + depth)
        self._value = dense("value", 1, 1.0, seed + depth + 1)
        self._heads: dict[str, Any] = {}
        features = self.torso.features(keras.KerasTensor((None, *spec.observation), spec.dtype))
        self.policy_value(features.hidden)
        self.trainable_variables: list[Any] = []
        self.names: list[str] = []
        for layer in self.torso.layers:
            self._track(f"torso/{layer.name}", layer)
        for layer in (self._policy, self._value):
            self._track(layer.name, layer)
        for task in self.tasks:
            with _computing(precision):
                self._build_head(task, features, seed)

    def _track(self, prefix: str, layer: Any) -> None:
        for variable in layer.trainable_variables:
            self.names.append(f"{prefix}/{variable.name}")
            self.trainable_variables.append(variable)

    def _build_head(self, task: LearnedTask, features: Features, seed: int) -> None:
        with _seeded(zlib.crc32(f"{seed}/{task.name}".encode())):
            head = self._heads[task.name] = task.head(self.spec)
            if head is None:
                return
            length = task.length(self.spec.t_max)
            head(_seen(task, Features(*(keras.KerasTensor((None, length, x.shape[-1])) for x in features))))
        if head.non_trainable_variables:
            names = ", ".join(variable.path for variable in head.non_trainable_variables)
            raise ValueError(f"task {task.name!r}: its head has untrained state ({names}); use layers without")
        # Keras numbers layers by a counter of the process, so a head's variables are named by their place.
        for place, variable in enumerate(head.trainable_variables):
            self.names.append(f"{task.name}/{place}/{variable.name}")
            self.trainable_variables.append(variable)

    def policy_value(self, hidden: Any) -> dict[str, Any]:
        """The actor-critic's outputs, of `hidden` `[..., Fh]`.

        Returns:
          "logits" `[..., A]`; "value" `[...]`, in the unit of the rewards; "scale", a scalar in the same unit: divide
          errors of the value by it.
        """
        value, scale = ops.squeeze(self._value(hidden), axis=-1), 1.0
        if "return" in self.statistics:
            known = self.statistics["return"].now()
            scale = self.statistics["return"].deviation(known)
            value = value * scale + known.mean
        return {"logits": self._policy(hidden), "value": value, "scale": scale}

    def task_outputs(self, task: LearnedTask, features: Features, batch: Mapping[str, Any] | None = None) -> Any:
        """A task's outputs `[B, T, ...]`, of features `[B, T, F]`; `batch` is for heads that ask for it."""
        head = self._heads[task.name]
        if head is None:
            return self.policy_value(features.hidden)
        asks = batch is not None and "batch" in inspect.signature(head.call).parameters
        outputs = head(_seen(task, features), batch=batch) if asks else head(_seen(task, features))
        return keras.tree.map_structure(lambda x: ops.cast(x, "float32"), outputs)

    def predict(self, head: str, observations: Any, past: Past | None = None) -> tuple[Any, ...]:
        """What agents ask for at single states.

        Args:
          head: "base", or the name of a task that bootstraps.
          observations: `[N, *spec.observation]`.
          past: `[N, ...]` with one step each; a recurrent network needs it.

        Returns:
          For "base" `(logits [N, A], value [N])`, and of a recurrent network the state behind the observation
          `[N, spec.state]`; for a task `(bootstrap [N, ...],)`.
        """
        features = Features(*(ops.expand_dims(x, 1) for x in self.torso.features(observations)))
        state: list[Any] = []
        if self.torso.recurrent:
            assert past is not None
            hidden, *state = self.torso.unroll(features.hidden, past)
            features = features._replace(hidden=hidden)
        if head == "base":
            outputs = self.policy_value(features.hidden)
            return outputs["logits"][:, 0], outputs["value"][:, 0], *state
        task = next(task for task in self.tasks if task.name == head)
        assert task.bootstrap is not None
        return (task.bootstrap(self.task_outputs(task, features)),)

    def loss(
        self,
        batch: Mapping[str, Any],
        *,
        entropy: float,
        value_weight: float,
        log_epsilon: float = 0.0,
        clip: float = 0.0,
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of all tasks, `a3c + sum(weight_i * loss_i)` (UNREAL, eq. 4).

        Args:
          batch: "observations" `[N, *spec.observation]`: the rows of the base rollouts (B * T), then each task's
            (B * T_i); "base": {"action" int32, "mask" float32, and float32 either "returns", what `losses.vtrace`
            takes, or PPO's "returns", "advantage" and "log_mu", all `[B, T]`}; for each task, by its name, its targets
            with a leading batch axis and "mask" `[B, T_i]`. Of a recurrent network also "past": the `Past` of each part
            that sees "hidden" features, by its name.
          entropy: weight of the policy's entropy (beta).
          value_weight: weight of the value loss.
          log_epsilon: GA3C's epsilon inside the logarithms; 0 where V-trace corrects.
          clip: of PPO's ratios.

        Returns:
          The total, and scalars by metric name; `loss_<task>` is unweighted.
        """
        base = batch["base"]
        count = ops.shape(base["mask"])[0]
        features = self._features(batch["observations"], count)
        if self.torso.recurrent:
            features = self._unrolled(features, batch["past"], count)
        outputs = self.policy_value(features[0].hidden)
        total, metrics = actor_critic_loss(
            base, outputs, entropy=entropy, value_weight=value_weight, log_epsilon=log_epsilon, clip=clip
        )
        for task, of_task in zip(self.tasks, features[1:], strict=True):
            targets = batch[task.name]
            loss = task.loss(self.task_outputs(task, of_task, targets), targets)
            metrics[f"loss_{task.name}"] = loss
            total = total + task.weight * loss
        return total, {**metrics, "loss_total": total}

    def moments(self, batch: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Moments]:
        """What a batch adds to `statistics`, by name.

        Args:
          batch: `loss`'s.
          metrics: what `loss` gave for it.
        """
        found, weight = {}, ops.reshape(batch["base"]["mask"], (-1,))
        if "observation" in self.statistics:
            rows = self._split(batch["observations"], ops.shape(batch["base"]["mask"])[0])[0]
            found["observation"] = self.torso.moments(rows, weight)
        if "return" in self.statistics:
            variance = ops.square(metrics["return_deviation"])
            found["return"] = Moments(metrics["return_mean"], variance, ops.sum(weight))
        return found

    def absorbed(self, found: Mapping[str, Moments]) -> list[tuple[Any, Any]]:
        """Variables that change when `statistics` take up `found` moments, each with its new value.

        The value's layer changes with the moments of the returns such that it predicts what it predicted before
        (PopArt, van Hasselt et al. 2016, section 2.2).
        """
        changed: list[tuple[Any, Any]] = []
        for name, statistics in self.statistics.items():
            known, new = statistics.now(), statistics.merged(found[name])
            changed += zip(statistics.variables, new, strict=True)
            if name == "return":
                before, after = statistics.deviation(known), statistics.deviation(new)
                kernel, bias = self._value.kernel, self._value.bias
                changed.append((kernel, kernel.value * (before / after)))
                changed.append((bias, (before * bias.value + known.mean - new.mean) / after))
        return changed

    def _features(self, observations: Any, count: Any) -> list[Features]:
        """Each part's features `[count, length, F]`: of one pass, or each of its own where passes run side by side."""
        if self._side_by_side:
            parts = [self.torso.features(rows) for rows in self._split(observations, count)]
        else:
            whole = self.torso.features(observations)
            parts = [Features(*rows) for rows in zip(*(self._split(x, count) for x in whole), strict=True)]
        return [
            Features(*(ops.reshape(x, (-1, length, x.shape[-1])) for x in part))
            for part, length in zip(parts, self.lengths, strict=True)
        ]

    def _split(self, rows: Any, count: Any) -> list[Any]:
        """Cuts `[N, ...]` into each part's `[count * length, ...]`."""
        ends = list(itertools.accumulate((count * length for length in self.lengths), initial=0))
        return [rows[start:end] for start, end in itertools.pairwise(ends)]

    def _unrolled(self, features: list[Features], pasts: Mapping[str, Past], count: Any) -> list[Features]:
        """The parts' features with the recurrence, in one pass over all parts of the same length."""
        features = list(features)
        names = ("base", *(task.name for task in self.tasks))
        by_length: dict[int, list[int]] = {}
        for place, name in enumerate(names):
            if name in pasts:
                by_length.setdefault(self.lengths[place], []).append(place)
        for places in by_length.values():
            past = Past(*(ops.concatenate(x) for x in zip(*(pasts[names[i]] for i in places), strict=True)))
            hidden, _ = self.torso.unroll(ops.concatenate([features[i].hidden for i in places]), past)
            for start, place in enumerate(places):
                features[place] = features[place]._replace(hidden=hidden[start * count : (start + 1) * count])
        return features


def _seen(task: LearnedTask, features: Features) -> Any:
    """The features that a task's head asks for."""
    return features if task.features == "both" else getattr(features, task.features)


@contextlib.contextmanager
def _computing(precision: str) -> Iterator[None]:
    """The precision of layers that are made inside; plug-ins' too."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Fixes what Keras's default initialisers, which plug-ins use, draw their seeds from: Python's global generator."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
