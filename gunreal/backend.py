"""Everything that differs between TensorFlow and JAX: choosing one, compiled prediction and training, padding, state.

No other file of the library imports `tensorflow` or `jax`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gunreal.config import Config
    from gunreal.network import Network

BACKENDS = ("tensorflow", "jax")


def select(backend: str, deterministic: bool = False) -> None:
    """Chooses Keras's backend for this process; call it before anything imports Keras.

    The accelerator's memory is taken as it is needed, so that other processes can use the rest.

    Args:
      backend: "tensorflow" or "jax".
      deterministic: whether operations must repeat bit by bit, which can cost speed.

    Raises:
      ValueError: unknown backend.
      RuntimeError: Keras is already loaded with the other backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is unknown; use {' or '.join(BACKENDS)}")
    if "keras" in sys.modules and (loaded := sys.modules["keras"].backend.backend()) != backend:
        raise RuntimeError(f"Keras is already loaded with {loaded}; call select({backend!r}) before importing keras")
    os.environ["KERAS_BACKEND"] = backend
    if backend == "jax":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if deterministic:
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _quiet_stderr():
        import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops what native code writes to stderr: importing TensorFlow prints notices that no log level can stop."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def data_format(layout: str) -> str:
    """Keras's name of a `--layout`: "nchw", "nhwc", or "auto": NCHW on a GPU, NHWC elsewhere."""
    if layout == "auto":
        layout = "nchw" if _has_gpu() else "nhwc"
    return {"nchw": "channels_first", "nhwc": "channels_last"}[layout]


def _has_gpu() -> bool:
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def make_learner(network: Network, config: Config) -> Learner:
    """The learner of the selected backend."""
    import keras

    kind = JaxLearner if keras.backend.backend() == "jax" else TensorFlowLearner
    return kind(network, config)


class Learner:
    """The network's weights and optimiser, with compiled prediction and training. Safe to share between threads.

    A prediction may overlap an update. Updates are applied one at a time.

    Attributes:
      version: number of updates applied.
    """

    def __init__(self, network: Network, config: Config):
        self._network, self._config = network, config
        self._variables = network.trainable_variables
        self._optimizer = _make_optimizer(config)
        self._optimizer.build(self._variables)
        # The learning rate is an argument of every update, not a state.
        self._slots = [v for v in self._optimizer.variables if v is not self._optimizer.learning_rate]
        self._heads = ["base", *(task.name for task in network.tasks if task.bootstrap is not None)]
        self._metrics: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self.version = 0

    def predict(self, head: str, observations: np.ndarray) -> tuple[np.ndarray, ...]:
        """`Network.predict`, compiled.

        Args:
          head: "base", or the name of a task that bootstraps.
          observations: `[N, *spec.observation]` of `spec.dtype`, any N >= 1.

        Returns:
          For "base" `(logits [N, A], value [N])`, for a task `(bootstrap [N, ...],)`.
        """
        raise NotImplementedError

    def train(self, batch: Mapping[str, Any], learning_rate: float) -> dict[str, float]:
        """One update with `Network.loss`'s batch of NumPy arrays.

        An update whose loss or gradient is not finite is skipped: weights and optimiser stay as they were.

        Returns:
          The loss's metrics, "grad_norm" (before clipping) and "skipped" (1.0 or 0.0).
        """
        with self._lock:
            values = self._update(batch, learning_rate)
            metrics = dict(zip(self._metrics, values.tolist(), strict=True))
            self.version += metrics["skipped"] == 0
        return metrics

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of all weights ("weights/..."), the optimiser's state ("optimizer/...") and the "version"."""
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
        """Hash of all weights in order: equal hashes, equal networks."""
        digest = hashlib.sha256()
        for array in self._read()[: len(self._variables)]:
            digest.update(np.asarray(array).tobytes())
        return digest.hexdigest()

    def _state_names(self) -> list[str]:
        weights = [f"weights/{name}" for name in self._network.names]
        return weights + [f"optimizer/{place:03d}" for place in range(len(self._slots))]

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
        return self._network.loss(
            batch, entropy=config.entropy, value_weight=config.value_weight, log_epsilon=config.log_epsilon
        )

    def _judge(self, total: Any, metrics: dict[str, Any], gradients: list[Any]) -> tuple[list[Any], Any, Any]:
        """Clipped gradients, whether they may be applied, and all metrics in one array, to be fetched in one transfer."""
        from keras import ops

        norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
        if self._config.max_grad_norm > 0:
            scale = self._config.max_grad_norm / ops.maximum(norm, self._config.max_grad_norm)
            gradients = [g * scale for g in gradients]
        finite = ops.logical_and(ops.isfinite(total), ops.isfinite(norm))
        metrics = {**metrics, "grad_norm": norm, "skipped": 1.0 - ops.cast(finite, "float32")}
        self._metrics = tuple(metrics)  # set while tracing: the compiled function gives the values only
        return gradients, finite, ops.stack(list(metrics.values()))

    def _update(self, batch: Mapping[str, Any], learning_rate: float) -> np.ndarray:
        raise NotImplementedError

    def _read(self) -> list[Any]:
        raise NotImplementedError

    def _write(self, arrays: list[np.ndarray]) -> None:
        raise NotImplementedError


class TensorFlowLearner(Learner):
    """`tf.function` and `GradientTape`. Shapes are traced with free batch axes: nothing is ever traced twice."""

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        import tensorflow as tf

        self._tf = tf
        observations = tf.TensorSpec((None, *network.spec.observation), network.spec.dtype)
        self._predict = {head: self._compile_predict(head, observations) for head in self._heads}
        self._step: Any = None

    def _compile_predict(self, head: str, observations: Any) -> Any:
        return self._tf.function(lambda x: self._network.predict(head, x), input_signature=[observations])

    def predict(self, head: str, observations: np.ndarray) -> tuple[np.ndarray, ...]:  # noqa: D102
        return tuple(output.numpy() for output in self._predict[head](observations))

    def _update(self, batch: Mapping[str, Any], learning_rate: float) -> np.ndarray:
        tf = self._tf
        if self._step is None:
            signature = tf.nest.map_structure(lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), batch)
            self._step = tf.function(self._train_step, input_signature=[signature, tf.TensorSpec((), "float32")])
        return self._step(batch, np.float32(learning_rate)).numpy()

    def _train_step(self, batch: Mapping[str, Any], learning_rate: Any) -> Any:
        tf = self._tf
        weights = [variable.value for variable in self._variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            total, metrics = self._loss(batch)
        gradients = tape.gradient(total, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients, finite, values = self._judge(total, metrics, gradients)
        self._optimizer.learning_rate.assign(learning_rate)

        def apply() -> Any:
            self._optimizer.apply(gradients, self._variables)
            return tf.constant(0)

        tf.cond(finite, apply, lambda: tf.constant(0))
        return values

    def _read(self) -> list[Any]:
        return [variable.value.numpy() for variable in [*self._variables, *self._slots]]

    def _write(self, arrays: list[np.ndarray]) -> None:
        for variable, array in zip([*self._variables, *self._slots], arrays, strict=True):
            variable.assign(array)


class JaxLearner(Learner):
    """`jax.jit` over the stateless forms of network and optimiser. Batches are padded up to powers of two, as every new
    shape costs a compilation."""

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        import jax

        self._jax = jax
        # One tuple, swapped at once after an update: a prediction sees one version. Not donated, as one may still use it.
        self._weights = tuple(variable.value for variable in self._variables)
        self._state = tuple(variable.value for variable in self._slots)
        self._predict = {head: jax.jit(self._stateless_predict(head)) for head in self._heads}
        self._step = jax.jit(self._train_step)

    def _stateless_predict(self, head: str) -> Any:
        def predict(weights: tuple[Any, ...], observations: Any) -> tuple[Any, ...]:
            with self._scope(weights):
                return self._network.predict(head, observations)

        return predict

    def _scope(self, weights: tuple[Any, ...]) -> Any:
        import keras

        return keras.StatelessScope(state_mapping=list(zip(self._variables, weights, strict=True)))

    def predict(self, head: str, observations: np.ndarray) -> tuple[np.ndarray, ...]:  # noqa: D102
        count = len(observations)
        size = _power_of_two(count)
        if count <= self._config.max_batch:
            size = min(size, self._config.max_batch)
        outputs = self._predict[head](self._weights, _pad(observations, size))
        return tuple(output[:count] for output in self._jax.device_get(outputs))

    def _update(self, batch: Mapping[str, Any], learning_rate: float) -> np.ndarray:
        batch = _pad_batch(batch, self._network.lengths)
        weights, state, values = self._step(self._weights, self._state, batch, np.float32(learning_rate))
        values = np.asarray(values)
        self._weights, self._state = weights, state
        return values

    def _train_step(
        self, weights: tuple[Any, ...], state: tuple[Any, ...], batch: Mapping[str, Any], learning_rate: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        def loss(weights: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
            with self._scope(weights):
                return self._loss(batch)

        (total, metrics), gradients = self._jax.value_and_grad(loss, has_aux=True)(weights)
        gradients, finite, values = self._judge(total, metrics, list(gradients))
        slots = iter(state)
        rate = self._optimizer.learning_rate
        variables = [learning_rate if v is rate else next(slots) for v in self._optimizer.variables]
        new_weights, variables = self._optimizer.stateless_apply(variables, gradients, list(weights))
        new_state = [x for v, x in zip(self._optimizer.variables, variables, strict=True) if v is not rate]

        def choose(new: list[Any], old: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(self._jax.numpy.where(finite, n, o) for n, o in zip(new, old, strict=True))

        return choose(new_weights, weights), choose(new_state, state), values

    def _read(self) -> list[Any]:
        return [*self._weights, *self._state]

    def _write(self, arrays: list[np.ndarray]) -> None:
        put = [self._jax.numpy.array(array) for array in arrays]
        self._weights, self._state = tuple(put[: len(self._variables)]), tuple(put[len(self._variables) :])


def _make_optimizer(config: Config) -> Any:
    import keras

    if config.optimizer == "rmsprop":
        return keras.optimizers.RMSprop(config.learning_rate, rho=config.rms_decay, epsilon=config.epsilon)
    if config.optimizer == "adam":
        return keras.optimizers.Adam(config.learning_rate, epsilon=config.epsilon)
    raise ValueError(f"optimizer {config.optimizer!r} is unknown; use rmsprop or adam")


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _pad(array: np.ndarray, size: int) -> np.ndarray:
    """`array` with rows of zeros up to `size` rows."""
    if len(array) == size:
        return array
    padded = np.zeros((size, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded


def _pad_batch(batch: Mapping[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    """`Network.loss`'s batch with its B sequences padded to a power of two; the mask of the new ones is 0."""
    count = len(batch["base"]["mask"])
    size = _power_of_two(count)
    if size == count:
        return dict(batch)
    padded: dict[str, Any] = {
        part: {name: _pad(array, size) for name, array in arrays.items()}
        for part, arrays in batch.items()
        if part != "observations"
    }
    ends = np.cumsum(lengths)[:-1] * count
    rows = np.split(batch["observations"], ends)
    padded["observations"] = np.concatenate([_pad(x, size * n) for x, n in zip(rows, lengths, strict=True)])
    return padded
