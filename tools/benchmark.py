"""Measures how near the whole system comes to what its parts could do: `python tools/benchmark.py [--json FILE]`.

Four rates, all in agent steps a second, interleaved in one run so that a noisy machine disturbs them alike:
  env      all environments stepped by all cores, nothing else running
  predict  policy and value, at the mean batch size that the system had
  train    updates with all tasks, at the system's training batch
  pps      the whole system
On shared cores the limit is 1 / (1/env + 1/predict + 1/train); with a GPU it is min(env, 1 / (1/predict + 1/train)).
A round counts only if it is balanced: steps acted and trained within 5 % of each other. Any training flag may be added.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gunreal import backend, flags
from gunreal.config import Config
from gunreal.crew import Crew
from gunreal.envs.make import make
from gunreal.parallel import ParallelRun
from gunreal.system import System
from gunreal.train import prepare

BALANCE = 0.05


def step_env(config: Config, num_envs: int, seconds: float) -> float:
    """Agent steps a second of `num_envs` environments with random actions, in this process."""
    env = make(config, num_envs)
    rng = np.random.default_rng(0)
    done, steps = np.ones(num_envs, bool), 0
    seeds = np.arange(num_envs)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        env.send(rng.integers(env.num_actions, size=num_envs).astype(np.int32), done, seeds)
        step = env.recv()
        done = step.terminated | step.truncated
        steps += num_envs
    env.close()
    return steps / (time.perf_counter() - start)


def measure_env(config: Config, seconds: float) -> float:
    """Agent steps a second of all environments on all cores: one process per core."""
    cores = min(len(os.sched_getaffinity(0)), config.agents)
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(step_env, config, config.agents // cores, seconds) for _ in range(cores)]
        return sum(job.result() for job in jobs)


def repeat(action: Any, size: int, seconds: float) -> float:
    """Items a second of an action that handles `size` of them."""
    action()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        action()
        count += size
    return count / (time.perf_counter() - start)


def measure_system(config: Config, seconds: float, warmup: float) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The whole system for `seconds`, `warmup` seconds after its first update.

    Returns:
      A line of metrics over that window, the last training batch, and the learner.
    """
    spec, tasks = prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        system = System(config, spec, tasks, Path(folder), None)
        run = ParallelRun(system)
        window = Window(system, run, seconds, warmup)
        try:
            run.run(window.tick)
        finally:
            system.writer.close()
            system.close()
        if system.failure:
            raise system.failure
        return window.line, window.batch, system.learner


class Window:
    """Waits until the system has warmed up, measures, and stops it."""

    def __init__(self, system: System, run: ParallelRun, seconds: float, warmup: float):
        self.line: dict[str, Any] = {}
        self.batch: dict[str, Any] = {}
        self._system, self._run, self._seconds, self._warmup = system, run, seconds, warmup
        self._first_update = self._start = 0.0
        work = system.trainer.work

        def keep(batch: dict[str, Any]) -> None:
            work(batch)
            self.batch = batch

        run.trainers = Crew("trainer", system.trainer.fetch, keep, system.fail)

    def tick(self) -> None:
        """Called about ten times a second."""
        now = time.monotonic()
        if not self._first_update:
            self._first_update = now if self._system.learner.version else 0.0
        elif not self._start:
            if now - self._first_update > self._warmup:
                self._start = now
                snapshot(self._system, self._run)
        elif now - self._start > self._seconds:
            self.line = snapshot(self._system, self._run)
            self._system.stop("steps")


def snapshot(system: System, run: ParallelRun) -> dict[str, Any]:
    """The metrics since the last call."""
    return system.snapshot(system.config.agents, run.counts.predictors, run.counts.trainers, run.memory_in_use())


def measure(config: Config, rounds: int, seconds: float) -> dict[str, Any]:
    """Medians over the balanced rounds."""
    rows = []
    for _ in range(rounds):
        line, batch, learner = measure_system(config, 2 * seconds, seconds)
        size = max(1, round(line["batch_base"]))
        observations = batch["observations"][:size].copy()
        steps = batch["base"]["mask"].size
        rows.append(
            {
                "env": measure_env(config, seconds),
                "predict": repeat(partial(learner.predict, "base", observations), size, seconds),
                "train": repeat(partial(learner.train, batch, 0.0), steps, seconds),
                "pps": line["pps"],
                "tps": line["tps"],
                "lag": line["policy_lag"],
                "lag_max": line["policy_lag_max"],
                "predict_batch": line["batch_base"],
                "train_batch": steps,
                "memory": line["memory_bytes"],
            }
        )
        row = rows[-1]
        row["limit"] = limit(row["env"], row["predict"], row["train"])
        row["share"] = row["pps"] / row["limit"]
        row["balanced"] = abs(row["pps"] - row["tps"]) <= BALANCE * row["pps"]
    good = [row for row in rows if row["balanced"]]
    if not good:
        raise SystemExit(
            f"no round was balanced: {[(row['pps'], row['tps']) for row in rows]}; measure longer with --seconds"
        )
    medians = {key: statistics.median(row[key] for row in good) for key in good[0] if key != "balanced"}
    return medians | {"rounds": len(good), "unbalanced": len(rows) - len(good)}


def limit(env: float, predict: float, train: float) -> float:
    """Agent steps a second if nothing but environments, predictions and training cost anything."""
    if backend.data_format("auto") == "channels_first":  # a GPU: the environments have the cores for themselves
        return min(env, 1 / (1 / predict + 1 / train))
    return 1 / (1 / env + 1 / predict + 1 / train)


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as text."""
    keys = (
        "env",
        "predict",
        "train",
        "limit",
        "pps",
        "share",
        "tps",
        "lag",
        "lag_max",
        "predict_batch",
        "train_batch",
        "rounds",
    )
    lines = ["".join(f"{key:>14}" for key in ("", *keys))]
    for name, row in results.items():
        cells = [f"{row[key]:.2f}" if key in ("share", "lag") else f"{row[key]:,.0f}" for key in keys]
        lines.append("".join(f"{cell:>14}" for cell in (name, *cells)))
    return "\n".join(lines)


def main() -> int:
    """Takes own flags out of the command line, the rest configures training."""
    own = {"--json": "", "--seconds": "8", "--rounds": "3"}
    rest = sys.argv[:1]
    words = iter(sys.argv[1:])
    for word in words:
        key, _, value = word.partition("=")
        if key in own:
            own[key] = value or next(words)
        else:
            rest.append(word)
    config, _ = flags.from_flags(rest)
    tasks = config.tasks or ("pc", "vr", "rp")
    results = {}
    for name, chosen in (("base", ()), ("tasks", tasks)):
        options = config.task if chosen else {}
        variant = dataclasses.replace(config, tasks=chosen, task=options, steps=10**9, name="")
        results[name] = measure(variant, int(own["--rounds"]), float(own["--seconds"]))
    print(table(results))
    if own["--json"]:
        Path(own["--json"]).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
