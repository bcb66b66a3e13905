"""The framework and its devices: selection, and what depends on them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gunreal.config.packages import is_installed
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import ConfigError
from gunreal.config.warning import quiet_stderr, warn

if TYPE_CHECKING:
    from gunreal.config.schema import Config

BACKENDS = ("tensorflow", "jax")
ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}  # environment of a process that leaves GPUs to others
_M_ARENA_MAX = -8  # from malloc.h
# Keras's pictures and TensorFlow's converters import these where they are installed, which takes more than a second.
_UNUSED = ("IPython", "jax", "matplotlib")


def installed() -> tuple[str, ...]:
    """The backends whose package is installed. None is imported."""
    return tuple(name for name in BACKENDS if is_installed(name))


def check_installed(backend: str) -> None:
    """Raises ConfigError if the package of `backend` is not installed."""
    if backend not in (found := installed()):
        remedy = f", or use another backend: {', '.join(found)}" if found else ""
        raise ConfigError(f"the backend {backend} is not installed; run pip install {backend}{remedy}")


def check_loaded(backend: str) -> None:
    """Raises ConfigError if this process has loaded Keras with another backend."""
    keras = sys.modules.get("keras")
    if keras is not None and (loaded := keras.backend.backend()) != backend:
        raise ConfigError(
            f"the run uses {backend}, but this process has loaded Keras with {loaded}; use another process, or set "
            f"KERAS_BACKEND={backend} before Keras is imported"
        )


def usable(backend: str) -> str:
    """`backend` if it is installed, otherwise another one, which a line on standard error names.

    Raises:
      ConfigError: none is installed.
    """
    found = installed()
    if backend in found or not found:
        check_installed(backend)
        return backend
    warn(f"{backend} is not installed; this program uses {found[0]} instead")
    return found[0]


def select(backend: str, deterministic: bool = False, threads: int | None = None) -> None:
    """Selects the Keras backend of this process. Call this before anything imports Keras.

    TensorFlow is loaded without its converters for JAX, and Keras without `keras.visualization`.

    Memory on the accelerator is allocated on demand, so that other processes can use the rest.

    Args:
      backend: "tensorflow" or "jax".
      deterministic: whether operations must be bit-reproducible, which can cost speed.
      threads: number of CPU threads per operation, by default one for each core. JAX supports only one or all. Threads
        spin while they wait for each other, so small batches are cheapest with one.

    Raises:
      ValueError: the backend is unknown.
      ConfigError: Keras is already loaded with the other backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; use {' or '.join(BACKENDS)}")
    check_loaded(backend)
    wanted = os.environ.get("KERAS_BACKEND", "")
    if wanted not in ("", backend) and "keras" not in sys.modules:
        hint = f"unset it, or train with --backend {wanted}" if wanted in BACKENDS else "leave it unset"
        warn(f"KERAS_BACKEND is {wanted}, but this run uses {backend}; {hint}")
    os.environ["KERAS_BACKEND"] = backend
    if backend == "jax":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        asked = {"--xla_gpu_deterministic_ops=true": deterministic, "--xla_cpu_multi_thread_eigen=false": threads == 1}
        added = [flag for flag, wanted in asked.items() if wanted and flag not in os.environ.get("XLA_FLAGS", "")]
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *added]).strip()
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")  # the pooled allocator that GPUs use by default
    if platform.machine() == "x86_64":
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # the default for some processors with AVX-512 only
    with contextlib.suppress(AttributeError):  # the C library is not glibc
        # All threads share two heaps. A heap for each would never give back the memory it once needed.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    # No log level stops TensorFlow's notices, such as that of a missing GPU.
    with quiet_stderr(), _hidden(_UNUSED):
        import tensorflow as tf

        importlib.import_module("keras")
        gpus = tf.config.list_physical_devices("GPU")
        with contextlib.suppress(RuntimeError):  # TensorFlow is already initialized and keeps its threads
            tf.config.threading.set_intra_op_parallelism_threads(threads or cores())
    for gpu in gpus:
        with contextlib.suppress(RuntimeError):  # the program has already used the GPU, whose memory is configured
            tf.config.experimental.set_memory_growth(gpu, True)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def select_any() -> None:
    """Selects the backend that KERAS_BACKEND names, or one that is installed. Keras may be loaded already."""
    if "keras" not in sys.modules:
        named = os.environ.get("KERAS_BACKEND")
        select(named if named in BACKENDS else usable("tensorflow"))


@contextlib.contextmanager
def preferred(backend: str) -> Iterator[None]:
    """If a file that is imported in this context, such as a task's, imports Keras, Keras loads this backend.

    Unlike `select`, this loads no framework itself.
    """
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = backend
    try:
        yield
    finally:
        os.environ.pop("KERAS_BACKEND")
        if before is not None:
            os.environ["KERAS_BACKEND"] = before


def select_for(config: Config) -> None:
    """Selects the backend of a run. See `select`."""
    reproducible = config.runner in ("serial", "device")
    select(config.backend, reproducible, resolved(config, Facts(cores=cores())).threads)


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def _hidden(names: Sequence[str]) -> Iterator[None]:
    """Imports in this context do not find these modules, unless they are loaded already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def data_format(layout: str) -> str:
    """Keras's name for a layout, "nchw" or "nhwc".

    Raises:
      ConfigError: the backend has no convolutions for it here.
    """
    if layout == "nchw" and side_by_side():
        import tensorflow as tf

        try:
            with quiet_stderr():
                tf.nn.conv2d(tf.zeros((1, 1, 1, 1)), tf.zeros((1, 1, 1, 1)), 1, "VALID", "NCHW")
        except tf.errors.UnimplementedError as error:
            fix = "use --layout nhwc, or set TF_ENABLE_ONEDNN_OPTS=1"
            raise ConfigError(f"TensorFlow has no convolutions of the layout nchw without oneDNN; {fix}") from error
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
