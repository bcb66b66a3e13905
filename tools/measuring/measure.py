"""Measures the whole system of a configuration, and its parts one by one.

Each measurement runs in a process of its own, so that earlier measurements do not affect its speed and memory.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from gunreal.config.schema import Config
from gunreal.envs.make import make
from gunreal.experience.replay import blank_past
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.learner import Learner
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System, on_this_machine
from gunreal.runtime.trainer import Batch, updates
from gunreal.train import prepare
from measuring.sampling import child_seconds
from measuring.window import Window

BALANCE = 0.05  # share by which the rates of acting and training may differ in a balanced measurement
_BOOT = "from measuring.measure import child; child()"
_PATIENCE = 20.0  # seconds for an interrupted measurement to end


class MeasurementFailed(RuntimeError):
    """A configuration could not be measured. The message is the last line of its process's output."""


def row(config: Config, seconds: float, parts: bool = True) -> dict[str, Any]:
    """Measures a configuration in a process of its own.

    Args:
      config: configuration without a scheduler.
      seconds: length of the warm-up and of the measurement of each part. The whole system is measured twice as long.
      parts: whether to measure environments, predictions and training separately and to profile the server's threads.

    Returns:
      See `whole_system` and `parts_alone`.

    Raises:
      MeasurementFailed: the process failed.
    """
    command = [sys.executable, "-c", _BOOT]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # so that the child finds the same packages
    # A new session keeps Ctrl-C in the terminal from the child, which is interrupted once, below.
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
    """Entry point of the process of `row`, which reads its arguments as pickle and writes its result as JSON."""
    config, seconds, parts = pickle.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # output of environments must not mix with the result
    result, batch, system = whole_system(config, seconds, parts)
    if parts:
        result |= parts_alone(system, result, batch, seconds)
    with open(out, "w") as file:
        json.dump(result, file)
    os._exit(0)  # a normal exit would spend 2 s on unloading TensorFlow


def whole_system(config: Config, seconds: float, profile: bool) -> tuple[dict[str, Any], dict[str, Any], System]:
    """Measures the whole system.

    Returns:
      The results of `Window.close` with "balanced" and "gpu" (whether one was used), the last training batch, and the
      stopped system, whose learner can still be used.
    """
    system, window = watched(config, lambda system: Window(system, seconds, 2 * seconds, seconds if profile else 0.0))
    result, batch = window.close()
    balanced = abs(result["pps"] - result["tps"]) <= BALANCE * result["pps"]
    return result | {"balanced": balanced, "gpu": has_gpu()}, batch, system


class Watcher(Protocol):
    """Observes a system while it trains, and stops it in the end."""

    def tick(self, run: ParallelRunner) -> None:
        """Called about ten times per second."""


W = TypeVar("W", bound=Watcher)


def watched(config: Config, watch: Callable[[System], W]) -> tuple[System, W]:
    """Runs a system without display and checkpoints until its watcher stops it.

    Args:
      config: the configuration.
      watch: returns the watcher for a system that has not started yet.

    Returns:
      The closed system and its watcher.
    """
    spec, tasks, _, config = prepare(config)
    config = on_this_machine(config)
    system = System(config, spec, tasks, None)
    with contextlib.closing(system):
        watcher, run = watch(system), ParallelRunner(system)
        run.run(partial(watcher.tick, run))
    if system.failure:
        raise system.failure
    return system, watcher


def has_gpu() -> bool:
    """Whether the learner has an accelerator, which leaves all cores to the environments."""
    return devices.has_gpu()


def parts_alone(system: System, whole: dict[str, Any], batch: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Measures the parts of a stopped system one by one, in agent steps per second.

    Args:
      system: the system.
      whole: its row from `whole_system`.
      batch: its last training batch.
      seconds: length of a measurement.

    Returns:
      "env": stepping all environments on all cores.
      "predict": policy and value, at the system's mean batch size.
      "predict_sizes": the same by batch size, from 1 to `max_batch`.
      "train": the updates with the system's training batch.
      "limit": the rate that follows from these, and "share", the whole system's rate divided by it.
      "alone_cpu_ms": CPU milliseconds per agent step of each part, and "cpu_share", their sum divided by the CPU time
      of the whole system. "cpu_share" is what "share" would be if no core were ever idle.
    """
    config, learner = system.config, system.learner
    predict = partial(prediction, learner, system.spec, batch["base"]["observations"])
    size = max(1, round(whole["predictions"]["base"]["mean"]))
    sizes = sorted({*(2**i for i in range(config.max_batch.bit_length())), config.max_batch})
    alone = {
        "env": environments(config, seconds),
        "predict": repeat(predict(size), size, seconds),
        "train": repeat(partial(train, system, batch), batch["base"]["mask"].size, seconds),
    }
    found: dict[str, Any] = {name: rate.per_second for name, rate in alone.items()}
    found["predict_sizes"] = {str(n): repeat(predict(n), n, seconds / len(sizes)).per_second for n in sizes}
    found["alone_cpu_ms"] = {name: rate.cpu_ms for name, rate in alone.items()}
    found["limit"] = limit(*alone.values(), None if whole["gpu"] else devices.cores())
    used = sum(whole["cpu_ms"].values()) - whole["cpu_ms"]["unused"]
    shares = {"share": whole["pps"] / found["limit"], "cpu_share": sum(found["alone_cpu_ms"].values()) / used}
    return found | shares


def train(system: System, batch: dict[str, Any]) -> None:
    """Does all updates that a training batch is used for, with a learning rate of 0."""
    learner = system.learner
    whole = Batch(batch, {}, {task.name: task.updates for task in learner.network.tasks})
    for part in updates(whole, system.config, learner.version):
        learner.train(part, 0.0)


def limit(env: Rate, predict: Rate, train: Rate, cores: int | None) -> float:
    """Returns the agent steps per second of a system without any overhead.

    On a CPU, the limit follows from the CPU time per agent step, because a single prediction or update may not keep all
    cores busy. With a GPU, environments run beside predictions and training.

    Args:
      env, predict, train: rates of the parts.
      cores: number of cores that all parts share, or None with a GPU.
    """
    if cores is None:
        return min(env.per_second, 1 / (1 / predict.per_second + 1 / train.per_second))
    return 1000 * cores / (env.cpu_ms + predict.cpu_ms + train.cpu_ms)


def prediction(learner: Learner, spec: Spec, observations: np.ndarray, size: int) -> Callable[[], Any]:
    """Returns a function that predicts for `size` observations, which are repeated as needed."""
    rows = np.resize(observations, (size, *spec.observation))
    return partial(learner.predict, "base", rows, blank_past(spec, size))


class Rate(NamedTuple):
    """Items per second, and CPU milliseconds per item."""

    per_second: float
    cpu_ms: float


def repeat(action: Callable[[], Any], size: int, seconds: float) -> Rate:
    """Repeats an action that processes `size` items, and returns its rate without the first call."""
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
    """Measures the agent steps of all environments, with one process per core."""
    processes = min(devices.cores(), config.agents)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(step_env, config, config.agents // processes, seconds) for _ in range(processes)]
        rates = [job.result() for job in jobs]
    return Rate(sum(rate.per_second for rate in rates), sum(rate.cpu_ms for rate in rates) / processes)


def step_env(config: Config, num_envs: int, seconds: float) -> Rate:
    """Measures the agent steps of `num_envs` environments with random actions, in this process."""
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
