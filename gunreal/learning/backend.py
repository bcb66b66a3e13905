"""Everything that differs between TensorFlow and JAX: selection, compiled prediction and training, padding and state.

No other file of the library imports `tensorflow` or `jax`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.experience.replay import ALIGN, Past
from gunreal.learning import heap
from gunreal.learning.learner import Learner as Learner  # part of this module's interface
from gunreal.learning.normalizer import Moments
from gunreal.learning.padding import pad, pad_batch, pad_past, padded_size

if TYPE_CHECKING:
    from gunreal.config.schema import Config
    from gunreal.learning.network import Network

BACKENDS = ("tensorflow", "jax")


def select(backend: str, deterministic: bool = False, threads: int = 0) -> None:
    """Selects the Keras backend of this process. Call this before anything imports Keras.

    Memory on the accelerator is allocated on demand, so that other processes can use the rest.

    Args:
      backend: "tensorflow" or "jax".
      deterministic: whether operations must be bit-reproducible, which can cost speed.
      threads: number of CPU threads per operation. 0 means all cores. JAX supports only one or all. Threads spin while
        they wait for each other, so small batches are cheapest with one.

    Raises:
      ValueError: the backend is unknown.
      RuntimeError: Keras is already loaded with the other backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; use {' or '.join(BACKENDS)}")
    if "keras" in sys.modules and (loaded := sys.modules["keras"].backend.backend()) != backend:
        raise RuntimeError(f"Keras is already loaded with {loaded}; call select({backend!r}) before importing keras")
    wanted = os.environ.get("KERAS_BACKEND", "")
    if wanted not in ("", backend) and "keras" not in sys.modules:
        hint = f"use --backend {wanted}" if wanted in BACKENDS else "leave it unset"
        print(f"gunreal: KERAS_BACKEND is {wanted}, but this run uses {backend}; {hint}", file=sys.stderr)
    os.environ["KERAS_BACKEND"] = backend
    if backend == "jax":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        asked = {"--xla_gpu_deterministic_ops=true": deterministic, "--xla_cpu_multi_thread_eigen=false": threads == 1}
        added = [flag for flag, wanted in asked.items() if wanted and flag not in os.environ.get("XLA_FLAGS", "")]
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *added]).strip()
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")  # the pooled allocator that GPUs use by default
    heap.share_heap()
    with _quiet_stderr():
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        with contextlib.suppress(RuntimeError):  # TensorFlow is already initialized and keeps its threads
            tf.config.threading.set_intra_op_parallelism_threads(threads)
    for gpu in gpus:
        with contextlib.suppress(RuntimeError):  # a script has used the GPU before: its memory is as that wanted it
            tf.config.experimental.set_memory_growth(gpu, True)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops stderr output of native code. No log level stops TensorFlow's notices, such as that of a missing GPU."""
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
    """Keras's name for a `--layout`: "nchw", "nhwc" or "auto", which is NCHW on a GPU and NHWC elsewhere."""
    if layout == "auto":
        layout = "nchw" if has_gpu() else "nhwc"
    return {"nchw": "channels_first", "nhwc": "channels_last"}[layout]


def has_gpu() -> bool:
    """Whether the network runs on a GPU. The backend must have been selected."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def side_by_side() -> bool:
    """Whether to run parts of an update in parallel. This suits TensorFlow on a CPU; a GPU prefers few large parts."""
    import keras

    return bool(keras.backend.backend() == "tensorflow" and not has_gpu())


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of arrays to a single pass over them.

    TensorFlow compiles it again for every shape. JAX always fuses, so there the function is returned unchanged.
    """
    import keras

    if keras.backend.backend() == "jax":
        return function
    import tensorflow as tf

    return tf.function(function, autograph=False, jit_compile=True)


def make_learner(network: Network, config: Config) -> Learner:
    """Makes the learner for the selected backend."""
    import keras

    kind = JaxLearner if keras.backend.backend() == "jax" else TensorFlowLearner
    return kind(network, config)


class _Operation:
    """A function compiled for one signature and called as a single operation in the calling thread.

    For a small prediction, the dispatch of `tf.function` and the switch to TensorFlow's threads and back cost more than
    the arithmetic.

    Args:
      function: function of tensors, in any nests.
      signature: one nest of `tf.TensorSpec` for each argument.
      spread: whether to use TensorFlow's threads, for functions with long, independent parts.
    """

    def __init__(self, function: Callable[..., Any], signature: list[Any], spread: bool = False):
        import tensorflow as tf

        self._tf, self._spread = tf, spread
        self._function = tf.function(function, autograph=False).get_concrete_function(*signature)
        self._captured = list(self._function.captured_inputs)
        self._dtypes = [output.dtype for output in self._function.outputs]

    def __call__(self, *args: Any) -> Any:
        tf = self._tf
        inputs = tf.nest.map_structure(self._tensor, args)
        if self._spread:
            return self._function(*inputs)
        flat = [*tf.nest.flatten(inputs), *self._captured]
        outputs = tf.raw_ops.StatefulPartitionedCall(args=flat, Tout=self._dtypes, f=self._function)
        return tf.nest.pack_sequence_as(self._function.structured_outputs, outputs)

    def _tensor(self, x: Any) -> Any:
        """Converts `x` to a tensor.

        TensorFlow copies arrays, and copies twice if they are not aligned to `ALIGN`. Large aligned arrays are used in
        place, because the call ends before they can change.
        """
        if isinstance(x, np.ndarray) and x.nbytes > 4096 and x.flags.carray and x.ctypes.data % ALIGN == 0:
            return self._tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        return self._tf.convert_to_tensor(x)


class TensorFlowLearner(Learner):
    """A learner with `tf.function` and `GradientTape`. Functions are traced once, with free batch axes."""

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        import tensorflow as tf

        self._tf = tf
        spec = network.spec
        inputs: list[Any] = [tf.TensorSpec((None, *spec.observation), self._sent)]
        if spec.state:
            step = functools.partial(tf.TensorSpec, (None, 1))
            inputs.append(Past(tf.TensorSpec((None, spec.state), "float32"), step("int32"), step("float32")))
        self._predict = {head: _Operation(functools.partial(network.predict, head), inputs) for head in self._heads}
        self._compiled: Any = None
        gradients = [tf.TensorSpec(variable.shape, "float32") for variable in self._variables]
        found = {
            name: Moments(*(tf.TensorSpec(variable.shape, "float32") for variable in statistics.variables))
            for name, statistics in network.statistics.items()
        }
        signature = [gradients, found, *[tf.TensorSpec((), "float32")] * 2]
        self._optimize = _Operation(fused(self._optimizer_step), signature)

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        inputs = (observations,) if past is None else (observations, past)
        return tuple(output.numpy() for output in self._predict[head](*inputs))

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], np.ndarray, dict[str, Moments]]:
        tf = self._tf
        with self._lock:  # two trainers may bring their first batch at the same time
            if self._compiled is None:
                signature = tf.nest.map_structure(lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), batch)
                spread = bool(self.network.tasks) and side_by_side()  # without tasks there is only one part
                self._compiled = _Operation(self._loss_gradient, [signature], spread)
        gradients, values, found = self._compiled(batch)
        return gradients, values.numpy(), found

    def _loss_gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], Any, dict[str, Moments]]:
        # A weight is read where it is first used, so another trainer's update may be seen in some weights only, as in
        # A3C. Preventing this would cost 5 % of an update.
        tf = self._tf
        weights = [variable.value for variable in self._variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            total, metrics = self._loss(batch)
        gradients = tape.gradient(total, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return gradients, self._judge(total, metrics, gradients), self.network.moments(batch, metrics)

    def _apply(self, gradients: list[Any], found: dict[str, Moments], scale: float, learning_rate: float) -> None:
        self._optimize(gradients, found, np.float32(scale), np.float32(learning_rate))

    def _optimizer_step(
        self, gradients: list[Any], found: dict[str, Moments], scale: Any, learning_rate: Any
    ) -> tuple[()]:
        self._optimizer.learning_rate.assign(learning_rate)
        self._optimizer.apply([scale * gradient for gradient in gradients], self._variables)
        for variable, value in self.network.absorbed(found):
            variable.assign(value)
        return ()

    def _read(self) -> list[Any]:
        return [variable.value.numpy() for variable in self._kept()]

    def _write(self, arrays: list[np.ndarray]) -> None:
        for variable, array in zip(self._kept(), arrays, strict=True):
            variable.assign(array)

    def _kept(self) -> list[Any]:
        return [*self._variables, *self._statistics, *self._slots]


class JaxLearner(Learner):
    """A learner with `jax.jit` over the stateless forms of network and optimizer.

    Batches are padded to powers of two, because every new shape costs a compilation.
    """

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        import jax

        self._jax = jax
        # One tuple, replaced at once after an update, so that a prediction sees a single version. It is not donated,
        # because it may be in use.
        self._weights = tuple(variable.value for variable in (*self._variables, *self._statistics))
        self._state = tuple(variable.value for variable in self._slots)
        self._predict = {head: jax.jit(self._stateless_predict(head)) for head in self._heads}
        self._compiled = jax.jit(self._loss_gradient)
        self._optimize = jax.jit(self._optimizer_step)

    def _stateless_predict(self, head: str) -> Any:
        def predict(weights: tuple[Any, ...], observations: Any, past: Past | None) -> tuple[Any, ...]:
            with self._scope(weights):
                return self.network.predict(head, observations, past)

        return predict

    def _scope(self, weights: tuple[Any, ...]) -> Any:
        import keras

        variables = (*self._variables, *self._statistics)
        return keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True)))

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        count = len(observations)
        size = padded_size(count, self._config.max_batch)
        outputs = self._predict[head](self._weights, pad(observations, size), past and pad_past(past, size))
        return tuple(output[:count] for output in self._jax.device_get(outputs))

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], np.ndarray, dict[str, Moments]]:
        gradients, values, found = self._compiled(self._weights, pad_batch(batch, self.network.lengths))
        return gradients, np.asarray(values), found

    def _loss_gradient(
        self, weights: tuple[Any, ...], batch: Mapping[str, Any]
    ) -> tuple[list[Any], Any, dict[str, Moments]]:
        trained = len(self._variables)

        def loss(trainable: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
            with self._scope((*trainable, *weights[trained:])):
                return self._loss(batch)

        (total, metrics), gradients = self._jax.value_and_grad(loss, has_aux=True)(weights[:trained])
        with self._scope(weights):
            found = self.network.moments(batch, metrics)
        return list(gradients), self._judge(total, metrics, gradients), found

    def _apply(self, gradients: list[Any], found: dict[str, Moments], scale: float, learning_rate: float) -> None:
        how = np.float32(scale), np.float32(learning_rate)
        self._weights, self._state = self._optimize(self._weights, self._state, gradients, found, *how)

    def _optimizer_step(
        self,
        weights: tuple[Any, ...],
        state: tuple[Any, ...],
        gradients: list[Any],
        found: dict[str, Moments],
        scale: Any,
        learning_rate: Any,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        slots, scaled = iter(state), [scale * gradient for gradient in gradients]
        rate, trained = self._optimizer.learning_rate, len(self._variables)
        variables = [learning_rate if v is rate else next(slots) for v in self._optimizer.variables]
        stepped, variables = self._optimizer.stateless_apply(variables, scaled, list(weights[:trained]))
        new_state = tuple(x for v, x in zip(self._optimizer.variables, variables, strict=True) if v is not rate)
        new_weights = (*stepped, *weights[trained:])
        with self._scope(new_weights):
            absorbed = {id(variable): value for variable, value in self.network.absorbed(found)}
        names = (*self._variables, *self._statistics)
        return tuple(absorbed.get(id(v), x) for v, x in zip(names, new_weights, strict=True)), new_state

    def _read(self) -> list[Any]:
        return [*self._weights, *self._state]

    def _write(self, arrays: list[np.ndarray]) -> None:
        put = [self._jax.numpy.array(array) for array in arrays]
        kept = len(self._weights)
        self._weights, self._state = tuple(put[:kept]), tuple(put[kept:])
