"""Measures one configuration: the whole system, and its parts alone. `benchmark.py` and `tune.py` ask for rows of it.

Each measurement is made in a process of its own: it starts from nothing, and its memory is its own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from gunreal.config.schema import Config
from gunreal.envs.make import make
from gunreal.experience.replay import blank_past
from gunreal.experience.spec import Spec
from gunreal.learning import backend
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System
from gunreal.train import prepare
from measuring.sampling import child_seconds
from measuring.window import Window

BALANCE = 0.05  # acted and trained steps may differ by so much
_BOOT = "from measuring.measure import child; child()"
_PATIENCE = 20.0  # seconds that a measurement has for its end when it is interrupted


class MeasurementFailed(RuntimeError):
    """A configuration could not be measured; the message is the last line that its process said."""


def row(config: Config, seconds: float, parts: bool = True) -> dict[str, Any]:
    """Measures a configuration in a process of its own.

    Args:
      config: without a scheduler.
      seconds: of each part's measurement. The whole system is measured for twice as long, `seconds` after it is going.
      parts: also measure environments, predictions and training alone, and where the server's threads are.

    Returns:
      See `whole_system` and `parts_alone`.

    Raises:
      MeasurementFailed: its process failed.
    """
    command = [sys.executable, "-c", _BOOT]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # it imports what this process can import
    # In a session of its own it hears nothing of a terminal's Ctrl-C: it is interrupted once, by us, below.
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = child.communicate(pickle.dumps((config, seconds, parts)))
    except BaseException:
        child.send_signal(signal.SIGINT)
        try:
            child.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    if child.returncode:
        said = errors.decode(errors="replace").strip().splitlines()
        raise MeasurementFailed(said[-1] if said else f"its process ended with code {child.returncode}")
    return json.loads(out)


def child() -> None:
    """The process of `row`: the job comes in pickled, the row goes out as JSON."""
    config, seconds, parts = pickle.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever an environment prints is no part of the answer
    result, batch, system = whole_system(config, seconds, parts)
    if parts:
        result |= parts_alone(system, result, batch, seconds)
    with open(out, "w") as file:
        json.dump(result, file)
    os._exit(0)  # Python would take TensorFlow apart for 2 s more


def whole_system(config: Config, seconds: float, profile: bool) -> tuple[dict[str, Any], dict[str, Any], System]:
    """A whole system's row, its last training batch, and the system itself: stopped, but its learner can be used.

    The row has what `Window.close` gives, whether it was "balanced", and whether a "gpu" was used.
    """
    system, window = watched(config, lambda system: Window(system, seconds, 2 * seconds, seconds if profile else 0.0))
    result, batch = window.close()
    balanced = abs(result["pps"] - result["tps"]) <= BALANCE * result["pps"]
    return result | {"balanced": balanced, "gpu": has_gpu()}, batch, system


class Watcher(Protocol):
    """Looks at a system, and stops it at some time."""

    def tick(self, run: ParallelRunner) -> None:
        """Called about ten times a second."""


W = TypeVar("W", bound=Watcher)


def watched(config: Config, watch: Callable[[System], W]) -> tuple[System, W]:
    """Runs a system, without a display and checkpoints, until it is stopped.

    Args:
      watch: makes the one that looks at a system, before that starts.

    Returns:
      The system, closed, and its watcher.
    """
    spec, tasks, _ = prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        system = System(config, spec, tasks, Path(folder), None)
        try:
            watcher, run = watch(system), ParallelRunner(system)
            run.run(partial(watcher.tick, run))
        finally:
            system.writer.close()
            system.close()
    if system.failure:
        raise system.failure
    return system, watcher


def has_gpu() -> bool:
    """Whether the learner has an accelerator of its own; the environments then have all cores."""
    return backend.data_format("auto") == "channels_first"


def parts_alone(system: System, whole: dict[str, Any], batch: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What the parts of a stopped system can do alone, in agent steps a second, and what follows for the whole.

    Returns:
      "env": all environments stepped by all cores. "predict": policy and value at the system's mean batch.
      "predict_sizes": the same for each batch size, 1 to `max_batch`. "train": updates with all tasks at the system's
      batch. "limit" and "share" of it. "alone_cpu_ms": CPU milliseconds of an agent step in each part, by its name;
      "cpu_share" of what the whole system used: what "share" would be if no core were idle.
    """
    config, learner = system.config, system.learner
    predict = partial(prediction, learner, system.spec, batch["observations"])
    size = max(1, round(whole["predictions"]["base"]["mean"]))
    sizes = sorted({*(2**i for i in range(config.max_batch.bit_length())), config.max_batch})
    alone = {
        "env": environments(config, seconds),
        "predict": repeat(predict(size), size, seconds),
        "train": repeat(partial(learner.train, batch, 0.0), batch["base"]["mask"].size, seconds),
    }
    found: dict[str, Any] = {name: rate.per_second for name, rate in alone.items()}
    found["predict_sizes"] = {str(n): repeat(predict(n), n, seconds / len(sizes)).per_second for n in sizes}
    found["alone_cpu_ms"] = {name: rate.cpu_ms for name, rate in alone.items()}
    found["limit"] = limit(*alone.values(), None if whole["gpu"] else backend.cores())
    used = sum(whole["cpu_ms"].values()) - whole["cpu_ms"]["unused"]
    shares = {"share": whole["pps"] / found["limit"], "cpu_share": sum(found["alone_cpu_ms"].values()) / used}
    return found | shares


def limit(env: Rate, predict: Rate, train: Rate, cores: int | None) -> float:
    """Agent steps a second if nothing but environments, actions' predictions and training cost anything.

    On shared cores, what `cores` that are never idle could do. The parts' rates would not tell: a prediction or update
    alone need not keep more than one core busy. With a GPU (None) the environments have the cores for themselves.
    """
    if cores is None:
        return min(env.per_second, 1 / (1 / predict.per_second + 1 / train.per_second))
    return 1000 * cores / (env.cpu_ms + predict.cpu_ms + train.cpu_ms)


def prediction(learner: backend.Learner, spec: Spec, observations: np.ndarray, size: int) -> Callable[[], Any]:
    """A prediction of actions for `size` observations, which are repeated as needed."""
    rows = np.resize(observations, (size, *observations.shape[1:]))
    return partial(learner.predict, "base", rows, blank_past(spec, size))


class Rate(NamedTuple):
    """Items a second, and CPU milliseconds of one item."""

    per_second: float
    cpu_ms: float


def repeat(action: Callable[[], Any], size: int, seconds: float) -> Rate:
    """The rate of an action that handles `size` items, after a first time."""
    action()
    count, used, start = 0, _cpu_seconds(), time.perf_counter()
    while True:
        action()
        count += size
        if (elapsed := time.perf_counter() - start) >= seconds:
            return Rate(count / elapsed, 1e3 * (_cpu_seconds() - used) / count)


def _cpu_seconds() -> float:
    return time.process_time() + sum(child_seconds().values())  # an environment may have a process of its own


def environments(config: Config, seconds: float) -> Rate:
    """Agent steps of all environments on all cores: one process per core, nothing else running."""
    processes = min(backend.cores(), config.agents)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(step_env, config, config.agents // processes, seconds) for _ in range(processes)]
        rates = [job.result() for job in jobs]
    return Rate(sum(rate.per_second for rate in rates), sum(rate.cpu_ms for rate in rates) / processes)


def step_env(config: Config, num_envs: int, seconds: float) -> Rate:
    """Agent steps of `num_envs` environments with random actions, in this process."""
    env = make(config, num_envs)
    rng, seeds = np.random.default_rng(0), np.arange(num_envs)
    done = np.ones(num_envs, bool)

    def step() -> None:
        nonlocal done
        result = env.step(rng.integers(env.num_actions, size=num_envs).astype(np.int32), done, seeds)
        done = result.terminated | result.truncated

    try:
        return repeat(step, num_envs, seconds)
    finally:
        env.close()
