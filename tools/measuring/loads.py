"""Measures three loads, as CuLE does: environments alone, environments with predictions, and training.

Each measurement runs in a process of its own, so that earlier ones do not affect its speed and memory.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from gunreal.config.schema import Config
from measuring import measure
from measuring.training_rate import training_rate

CALL = 8  # steps in one compiled call
EMULATION, INFERENCE, TRAINING = "emulation", "inference", "training"


def rate(load: str, config: Config, seconds: float, patience: float) -> dict[str, Any]:
    """Measures a load in agent steps per second.

    Args:
      load: "emulation" (random actions), "inference" (actions of a new network) or "training".
      config: configuration of a run, whose runner decides where the environments are.
      seconds: length of the measurement, after a warm-up.
      patience: longest time of a training, in seconds.

    Returns:
      "steps": agent steps per second. A training adds what `training_rate` returns.

    Raises:
      RuntimeError, ConfigError: the measurement failed.
    """
    if load == TRAINING:
        fields = {name: value for name, value in vars(config).items() if value != getattr(Config(), name)}
        return training_rate(fields, seconds / 3, patience)
    work = {EMULATION: emulation, INFERENCE: inference}[load]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return {"steps": pool.submit(work, config, seconds).result()}


def emulation(config: Config, seconds: float) -> float:
    """Steps environments with random actions: compiled programs, or one process per core."""
    if config.runner != "device":
        return measure.environments(config, seconds).per_second
    play, state = _random_play(config, np.arange(config.agents))
    return _repeated(play, state, config.agents, seconds)


def inference(config: Config, seconds: float) -> float:
    """Acts with a new network: in compiled programs, or step by step with environments in this process."""
    from gunreal.runtime.system import build_learner, on_this_machine
    from gunreal.train import prepare

    spec, tasks, _, config = prepare(config)
    config = on_this_machine(config)
    learner: Any = build_learner(config, spec, tasks)
    if config.runner != "device":
        return _predicted(config, spec, learner, seconds)
    import jax

    from gunreal.device.acting import Acting
    from gunreal.device.environment import frames, open_environment

    env = open_environment(config, config.agents)
    convert = frames(config, spec, env.observation_space)
    acting = Acting(config, spec, env, convert, learner.objective, learner.functional_predict, env.step)
    compiled = jax.jit(lambda actors, weights: acting.play(weights, actors, CALL)[::2], donate_argnums=0)
    actors = jax.jit(acting.start)()
    return _repeated(lambda actors: compiled(actors, learner.arrays[0]), actors, config.agents, seconds)


def _repeated(call: Callable[[Any], tuple[Any, Any]], state: Any, agents: int, seconds: float) -> float:
    """Calls a program of `CALL` steps again and again, and returns agent steps per second."""
    for _ in range(2):  # compiles, and leaves the start
        state, result = call(state)
    result.block_until_ready()
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds or not calls:
        state, result = call(state)
        result.block_until_ready()
        calls += 1
    return calls * CALL * agents / passed


def _predicted(config: Config, spec: Any, learner: Any, seconds: float) -> float:
    from gunreal.envs.make import make

    env, rng = make(config, config.agents), np.random.default_rng(0)
    seeds, channels = np.arange(config.agents), spec.frame[0]
    done, actions = np.ones(config.agents, bool), np.zeros(config.agents, np.int32)
    stack = np.zeros((config.agents, *spec.observation), spec.dtype)

    def step() -> None:
        nonlocal done, actions, stack
        result = env.step(actions, done, seeds)
        stack = np.concatenate([stack[:, channels:], result.frame], 1)
        logits = learner.predict("base", stack)[0]
        actions = (logits + rng.gumbel(size=logits.shape)).argmax(1).astype(np.int32)  # a draw from the policy
        done = result.terminated | result.truncated

    try:
        return measure.repeat(step, config.agents, seconds).per_second
    finally:
        env.close()


def course(config: Config, steps: int) -> list[dict[str, float]]:
    """Steps environments that begin in the same state with random actions (CuLE, figures 3 and 4).

    Args:
      config: configuration of a run. With the parallel runner, the compiled program runs on the CPU.
      steps: number of agent steps.

    Returns:
      For each call of `CALL` steps: "step" at its end, "rate" in agent steps per second, and "resets", the number of
      environments that ended an episode.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_course, config, steps).result()


def _course(config: Config, steps: int) -> list[dict[str, float]]:
    if config.runner != "device":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    same = np.zeros(config.agents)
    play, state = _random_play(config, same)
    play(jax.tree.map(jax.numpy.copy, state))[1].block_until_ready()  # compiles
    found = []
    for call in range(max(1, steps // CALL)):
        start = time.perf_counter()
        state, ends = play(state)
        resets = int(ends)
        found.append({"step": (call + 1) * CALL, "rate": CALL * config.agents / (time.perf_counter() - start),
                      "resets": resets})  # fmt: skip
    return found


def _random_play(config: Config, seeds: np.ndarray) -> tuple[Callable[[Any], tuple[Any, Any]], Any]:
    """Random play of `CALL` steps as a compiled program, and its first state."""
    import jax

    from gunreal.device.environment import open_environment
    from measuring.random_play import random_play

    env = open_environment(config, config.agents)
    started = jax.jit(lambda seeds: env.init(seeds)[0])(jax.numpy.asarray(seeds, "int32"))
    play = random_play(env.step, int(env.action_space.n), config.agents, CALL)
    return play, (started, jax.random.key(0))
