"""The base class of both backends' learners: the order of updates, the optimizer, and the saved state."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gunreal.config.objective import load_objective
from gunreal.config.schema import Config
from gunreal.learning.normalizer import Moments
from gunreal.learning.optimizer import clip_factor, initial_state
from gunreal.learning.steps import Steps
from gunreal.learning.task import acting_head, prediction_heads

if TYPE_CHECKING:
    from gunreal.experience.replay import Past
    from gunreal.learning.network import Network


@dataclasses.dataclass(frozen=True)
class Scalars:
    """Named numbers in one array, which a device sends in one transfer.

    The names belong to the structure, so that compiled functions of TensorFlow and JAX return them too.

    Attributes:
      values: float32 `[names]`.
      priorities: priorities of the steps of sequences, float32 `[B, T]`, by the names of the tasks that report any.
    """

    names: tuple[str, ...]
    values: Any
    priorities: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[self.names.index(name)]

    def floats(self) -> dict[str, float]:
        """The numbers by name."""
        return dict(zip(self.names, np.asarray(self.values).tolist(), strict=True))

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.names,), (self.values, self.priorities)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], components: tuple[Any, ...]) -> Scalars:
        return cls(*metadata, *components)


class Gradient(NamedTuple):
    """What a batch says about the weights.

    Attributes:
      values: one array per weight, on the device, before clipping.
      moments: the moments of the batch, by the names of `Network.statistics`, and new arrays of tasks, by those of
        `Network.untrained`.
      metrics: the metrics of the loss, "grad_norm" (before clipping) and "skipped" (1.0 if anything is not finite). If
        tasks report any, "priorities" has the `Scalars.priorities`.
    """

    values: list[Any]
    moments: dict[str, Any]
    metrics: dict[str, Any]


class Learner:
    """The network's weights and optimizer, with compiled prediction and training. It is thread-safe.

    A prediction may overlap an update. Several threads may compute gradients at the same time, each with the weights it
    found. Gradients are applied one at a time.

    Attributes:
      objective: what its policy and value learn.
      steps: how the steps of some heads differ.
      version: number of updates applied.
    """

    def __init__(self, network: Network, config: Config):
        from keras import Variable

        self.network, self._config, self.objective = network, config, load_objective(config)
        self._variables = network.trainable_variables
        self._untrained = list(network.untrained.values())
        # The dtype in which observations are sent to the device. The torso casts and scales them there in any case.
        self._sent = "float32" if config.transfer == "float32" else network.spec.dtype
        shapes = {name: tuple(v.shape) for name, v in zip(network.names, self._variables, strict=True)}
        # TensorFlow has no variables of int32 on a GPU, and JAX none of int64; Keras's "int" is what they have.
        self._slots = {
            f"optimizer/{name}": Variable(array, dtype="int" if array.dtype.kind == "i" else "float32", trainable=False)
            for name, array in initial_state(config, shapes).items()
        }
        self._heads = *prediction_heads(network.tasks), *({acting_head(network.spec)} - {"base"})
        self.steps = Steps(network, config.max_grad_norm)
        self._lock = threading.Lock()
        self.version = 0
        self._held: int | None = None  # the version of the copy that `hold` has made

    @property
    def acting_version(self) -> int:
        """Number of updates applied to the weights that predictions use."""
        return self.version if self._held is None else self._held

    def ready(self) -> None:
        """Does nothing, because `train` returns after its update."""

    def hold(self) -> None:
        """From now on, predictions use a copy of the present weights, until the next call makes a newer copy.

        Without any call, each prediction uses the newest weights.
        """
        with self._lock:
            self._copy()
            self._held = self.version

    def predict(self, head: str, observations: np.ndarray, past: Past | None = None) -> tuple[np.ndarray, ...]:
        """Calls the compiled `Network.predict`.

        Args:
          head: "base", "bonus" if tasks give any, or the name of a task with a bootstrap.
          observations: `[N, *spec.observation]` of dtype `spec.dtype`, with N >= 1.
          past: `[N, ...]` with one step each, or None if the network needs none.

        Returns:
          As `Network.predict`. Logits and value are those of `Objective.acting`.
        """
        outputs = self._outputs(head, observations.astype(self._sent, copy=False), past)
        if head not in ("base", "bonus"):
            return outputs
        return *self.objective.acting(*outputs[:2], self.objective.exploration(1.0)), *outputs[2:]

    def train(
        self, batch: Mapping[str, Any], learning_rate: float, entropy: float | None = None, progress: float = 0.0
    ) -> dict[str, Any]:
        """Performs one update.

        An update with a non-finite loss or gradient is skipped. Weights and optimizer then stay unchanged.

        Args:
          batch: the batch of `Network.loss`, as NumPy arrays.
          learning_rate: learning rate of this update.
          entropy: weight of the entropy bonus. None means that of the start.
          progress: share of the training budget that has been used, in [0, 1], for the losses of tasks.

        Returns:
          `Gradient.metrics` and "version", the number of updates applied before this one, including those of other
          threads during the computation.
        """
        gradient = self.gradient(batch, entropy, progress)
        metrics = gradient.metrics
        with self._lock:
            metrics["version"] = self.version
            if not metrics["skipped"]:
                factor = clip_factor(metrics["grad_norm"], self._config.max_grad_norm, np)
                self._apply(gradient.values, gradient.moments, factor, learning_rate)
                self.version += 1
        return metrics

    def features(self, observations: np.ndarray) -> np.ndarray:
        """Calls the compiled `Network.features`."""
        return self._called("features", observations.astype(self._sent, copy=False))

    def recall(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Calls the compiled `Network.recall`."""
        return self._called("recall", self._to_send(batch))

    def look(self, batch: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Calls the compiled `Network.look`."""
        return self._called("look", self._to_send(batch))

    def warm_up(self, batch: Mapping[str, Any]) -> None:
        """Compiles an update for batches like this one. The state does not change.

        No other thread may use the learner meanwhile.
        """
        gradients, _, moments = self._gradient(self._prepared(batch))
        with self._lock:
            state = [np.array(array) for array in self._read()]
            self._apply(gradients, moments, 0.0, 0.0)
            self._write(state)

    def gradient(self, batch: Mapping[str, Any], entropy: float | None = None, progress: float = 0.0) -> Gradient:
        """Computes the gradient of a batch, and applies nothing. `train` describes the arguments."""
        gradients, metrics, moments = self._gradient(self._prepared(batch, entropy, progress))
        found: dict[str, Any] = metrics.floats()
        if metrics.priorities:
            found["priorities"] = {name: np.asarray(array) for name, array in metrics.priorities.items()}
        return Gradient(gradients, moments, found)

    def _prepared(
        self, batch: Mapping[str, Any], entropy: float | None = None, progress: float = 0.0
    ) -> dict[str, Any]:
        """The arguments of the compiled function. What changes from update to update is an array."""
        weight = self._config.entropy if entropy is None else entropy
        now = {"entropy": np.full(1, weight, "f4"), "progress": np.full(1, progress, "f4")}
        now["version"] = np.full(1, self.version, "i4")
        return {**self._to_send(batch), "now": now}

    def _to_send(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch whose observations have the dtype in which they are sent to the device."""
        sent = {name: batch[name]["observations"].astype(self._sent, copy=False) for name in self.network.parts(batch)}
        return {**batch, **{name: {**batch[name], "observations": array} for name, array in sent.items()}}

    def assign(self, arrays: Mapping[str, np.ndarray], version: int) -> None:
        """Replaces all that `get_state` has by what others have trained, but for the optimizer's state."""
        with self._lock:
            self._write([arrays[name] for name in self.network.variables])
            self.version = version

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies the state of the learner.

        Returns:
          Weights ("weights/..."), what gradients do not train (`Network.untrained`), the optimizer's state
          ("optimizer/...") and "version".
        """
        with self._lock:
            state = dict(zip(self._state_names(), (np.array(x) for x in self._read()), strict=True))
            return {**state, "version": np.array(self.version, np.int64)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state returned by `get_state`.

        Raises:
          ValueError: the state belongs to another network, other tasks or another optimizer. The message lists what
            does not fit, and nothing is changed.
        """
        with self._lock:
            names = self._state_names()
            self.check(state, dict(zip(names, self._read(), strict=True)))
            self._write([np.asarray(state[name]) for name in names])
            self.version = int(state["version"])

    def set_weights(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the weights and moments of a state. The optimizer, and heads that this network lacks, are ignored.

        Raises:
          ValueError: as `set_state`.
        """
        with self._lock:
            names = list(self.network.variables)
            known = {name: state[name] for name in [*names, "version"] if name in state}
            self.check(known, dict(zip(names, self._read(), strict=False)))
            self._write([np.asarray(state[name]) for name in names])
            self.version = int(state["version"])

    def _state_names(self) -> list[str]:
        return [*self.network.variables, *self._slots]

    @staticmethod
    def check(state: Mapping[str, np.ndarray], own: Mapping[str, Any]) -> None:
        """Compares the names and shapes of a state with those of `own` arrays.

        Raises:
          ValueError: they differ. The message is one line.
        """
        wrong = [f"{name} is missing" for name in [*own, "version"] if name not in state]
        wrong += [f"{name} is unexpected" for name in state if name not in own and name != "version"]
        for name, array in own.items():
            if name in state and tuple(np.shape(state[name])) != tuple(array.shape):
                wrong.append(f"{name} has shape {np.shape(state[name])} instead of {tuple(array.shape)}")
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ValueError(f"the state does not fit the network and optimizer: {'; '.join(wrong[:5])}{more}")

    def _loss(self, batch: Mapping[str, Any]) -> tuple[Any, tuple[dict[str, Any], ...]]:
        """The total loss; then metrics, the new arrays of tasks and the terms, see `Network.loss`."""
        config = self._config
        total, metrics, states, terms = self.network.loss(
            batch,
            self.objective,
            entropy=batch["now"]["entropy"][0],
            progress=batch["now"]["progress"][0],
            version=batch["now"]["version"][0],
            value_weight=config.value_weight,
        )
        if config.reduction == "sum":
            from keras import ops

            steps = ops.sum(batch["base"]["mask"])
            total, terms = total * steps, {name: term * steps for name, term in terms.items()}
        return total, (metrics, states, terms)

    def _is_gated(self, batch: Mapping[str, Any]) -> bool:
        """Whether a task of the batch has a gate, which needs the gradient of each such task alone."""
        return any(task.gate and task.name in batch for task in self.network.tasks)

    def _judge(
        self, total: Any, metrics: dict[str, Any], gradients: list[Any], moments: Mapping[str, Any]
    ) -> tuple[list[Any], Scalars]:
        """The gradients, those of some heads clipped, and all metrics of `Gradient`."""
        from keras import ops

        apart = self.steps.apart
        norm = ops.sqrt(sum(ops.sum(ops.square(g)) for place, g in enumerate(gradients) if place not in apart))
        gradients, norms = self.steps.clipped(gradients)
        # An infinite observation is clipped, so the loss does not show it. Its square would spoil the running moments.
        spread = [
            ops.sum(ops.square(part.mean) + part.variance if isinstance(part, Moments) else ops.cast(part, "float32"))
            for part in moments.values()
        ]
        finite = ops.all(ops.isfinite(ops.stack([total, norm, *norms.values(), *spread])))
        metrics = {**metrics, **norms, "grad_norm": norm, "skipped": 1.0 - ops.cast(finite, "float32")}
        priorities = {name.split("/")[1]: metrics.pop(name) for name in list(metrics) if name.startswith("priority/")}
        return gradients, Scalars(tuple(metrics), ops.stack(list(metrics.values())), priorities)

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        raise NotImplementedError

    def _copy(self) -> None:
        """Copies weights and moments for predictions. The caller holds the lock."""
        raise NotImplementedError

    def _called(self, method: str, batch: Any) -> Any:
        """What a compiled method of the network returns for a batch, as NumPy arrays."""
        raise NotImplementedError

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], Scalars, dict[str, Any]]:
        """The gradients at the current weights, the metrics, and `Gradient.moments`, all on the device."""
        raise NotImplementedError

    def _apply(self, gradients: list[Any], moments: dict[str, Any], scale: float, learning_rate: float) -> None:
        """Applies `scale` times the gradients (`Steps.scaled`), then the moments. The caller holds the lock."""
        raise NotImplementedError

    def _read(self) -> list[Any]:
        """Weights, what gradients do not train, and the optimizer's state, in this order."""
        raise NotImplementedError

    def _write(self, arrays: Sequence[np.ndarray]) -> None:
        """Replaces what `_read` returns: all of it, or all but the optimizer's state."""
        raise NotImplementedError
