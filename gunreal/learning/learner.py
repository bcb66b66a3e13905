"""What the learners of both backends share: the order of updates, the optimiser, and the state that is saved."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.learning.normalizer import Moments

if TYPE_CHECKING:
    from gunreal.config.schema import Config
    from gunreal.experience.replay import Past
    from gunreal.learning.network import Network


class Learner:
    """The network's weights and optimiser, with compiled prediction and training. Safe to share between threads.

    A prediction may overlap an update. Several threads may compute gradients at the same time, each at the weights that
    it found; they are applied one at a time.

    Attributes:
      network: what it learns.
      version: number of updates applied.
    """

    def __init__(self, network: Network, config: Config):
        self.network, self._config = network, config
        self._variables = network.trainable_variables
        self._statistics = [v for statistics in network.statistics.values() for v in statistics.variables]
        # Of observations on their way to the device; the torso casts and scales them there in either case.
        self._sent = "float32" if config.transfer == "float32" else network.spec.dtype
        self._optimizer = make_optimizer(config)
        self._optimizer.build(self._variables)
        # The learning rate is an argument of every update, not a state.
        self._slots = [v for v in self._optimizer.variables if v is not self._optimizer.learning_rate]
        self._heads = ["base", *(task.name for task in network.tasks if task.bootstrap is not None)]
        self._metrics: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self.version = 0

    def predict(self, head: str, observations: np.ndarray, past: Past | None = None) -> tuple[np.ndarray, ...]:
        """`Network.predict`, compiled.

        Args:
          head: "base", or the name of a task that bootstraps.
          observations: `[N, *spec.observation]` of `spec.dtype`, any N >= 1.
          past: `[N, ...]` with one step each; a recurrent network needs it, to others it is None.

        Returns:
          For "base" `(logits [N, A], value [N])`, and of a recurrent network the next state `[N, spec.state]`; for a
          task `(bootstrap [N, ...],)`.
        """
        return self._outputs(head, observations.astype(self._sent, copy=False), past)

    def train(self, batch: Mapping[str, Any], learning_rate: float) -> dict[str, float]:
        """One update with `Network.loss`'s batch of NumPy arrays.

        An update whose loss or gradient is not finite is skipped: weights and optimiser stay as they were.

        Returns:
          The loss's metrics, "grad_norm" (before clipping), "skipped" (1.0 or 0.0) and "version": the number of updates
          that the weights had before this one was applied, those included that other threads applied meanwhile.
        """
        batch = {**batch, "observations": batch["observations"].astype(self._sent, copy=False)}
        gradients, values, found = self._gradient(batch)
        metrics = dict(zip(self._metrics, values.tolist(), strict=True))
        with self._lock:
            metrics["version"] = self.version
            if not metrics["skipped"]:
                self._apply(gradients, found, self._scale(metrics["grad_norm"]), learning_rate)
                self.version += 1
        return metrics

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of all weights ("weights/..."), running moments ("statistics/..."), the optimiser's state
        ("optimizer/...") and the "version"."""
        with self._lock:
            state = dict(zip(self._state_names(), (np.array(x) for x in self._read()), strict=True))
            return {**state, "version": np.array(self.version, np.int64)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from what `get_state` gave.

        Raises:
          ValueError: the state is of another network, other tasks or another optimiser; it names what does not fit, and
            nothing is changed.
        """
        with self._lock:
            names = self._state_names()
            self._check(state, dict(zip(names, self._read(), strict=True)))
            self._write([np.asarray(state[name]) for name in names])
            self.version = int(state["version"])

    def weights_sha256(self) -> str:
        """Hash of all weights and moments in order: equal hashes, equal networks."""
        digest = hashlib.sha256()
        with self._lock:
            for array in self._read()[: len(self._variables) + len(self._statistics)]:
                digest.update(np.asarray(array).tobytes())
        return digest.hexdigest()

    def _state_names(self) -> list[str]:
        weights = [f"weights/{name}" for name in self.network.names]
        moments = [f"statistics/{name}/{part}" for name in self.network.statistics for part in Moments._fields]
        return weights + moments + [f"optimizer/{place:03d}" for place in range(len(self._slots))]

    @staticmethod
    def _check(state: Mapping[str, np.ndarray], own: Mapping[str, Any]) -> None:
        wrong = [f"{name} is missing" for name in [*own, "version"] if name not in state]
        wrong += [f"{name} is unexpected" for name in state if name not in own and name != "version"]
        for name, array in own.items():
            if name in state and tuple(np.shape(state[name])) != tuple(array.shape):
                wrong.append(f"{name} has shape {np.shape(state[name])} instead of {tuple(array.shape)}")
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ValueError(f"the state does not fit the network and optimizer: {'; '.join(wrong[:5])}{more}")

    def _loss(self, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        config = self._config
        total, metrics = self.network.loss(
            batch,
            entropy=config.entropy,
            value_weight=config.value_weight,
            log_epsilon=config.log_epsilon if config.correction == "epsilon" else 0.0,
            clip=config.ppo_clip,
        )
        if config.reduction == "sum":
            from keras import ops

            total = total * ops.sum(batch["base"]["mask"])
        return total, metrics

    def _judge(self, total: Any, metrics: dict[str, Any], gradients: list[Any]) -> Any:
        """All metrics in one array, to be fetched in one transfer."""
        from keras import ops

        norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
        finite = ops.logical_and(ops.isfinite(total), ops.isfinite(norm))
        metrics = {**metrics, "grad_norm": norm, "skipped": 1.0 - ops.cast(finite, "float32")}
        self._metrics = tuple(metrics)  # set while tracing: the compiled function gives the values only
        return ops.stack(list(metrics.values()))

    def _scale(self, norm: float) -> float:
        """What gradients of this global norm are multiplied by, which the optimiser does in its own pass over them."""
        most = self._config.max_grad_norm
        return most / max(norm, most) if most > 0 else 1.0

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        raise NotImplementedError

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], np.ndarray, dict[str, Moments]]:
        """The gradients at the present weights, on the device, the metrics' values, and the batch's moments."""
        raise NotImplementedError

    def _apply(self, gradients: list[Any], found: dict[str, Moments], scale: float, learning_rate: float) -> None:
        """One step of the optimiser with `scale` times the gradients, then the moments; the lock is held."""
        raise NotImplementedError

    def _read(self) -> list[Any]:
        """Weights, moments, the optimiser's state."""
        raise NotImplementedError

    def _write(self, arrays: list[np.ndarray]) -> None:
        raise NotImplementedError


def make_optimizer(config: Config) -> Any:
    """The configured optimiser; Keras's RMSprop keeps epsilon inside the square root, as GA3C's eq. 3 does."""
    import keras

    if config.optimizer == "rmsprop":
        return keras.optimizers.RMSprop(config.learning_rate, rho=config.rms_decay, epsilon=config.epsilon)
    if config.optimizer == "adam":
        return keras.optimizers.Adam(config.learning_rate, epsilon=config.epsilon)
    raise ValueError(f"optimizer {config.optimizer!r} is unknown; use rmsprop or adam")
