"""Measures a running system after a warm-up, and then profiles the threads of its server."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from gunreal.experience.spec import Spec
from gunreal.experience.waits import Reader
from gunreal.learning import devices
from gunreal.runtime import ram
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.system import System
from gunreal.runtime.trainer import Trainer, learned
from measuring.sampling import Sampler, child_seconds, thread_seconds


class Calls:
    """Records the calls of a learner and their durations until `stop`. Several threads may call the learner."""

    def __init__(self, learner: Any) -> None:
        self.predictions: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)  # by head: size, seconds
        self.updates: list[float] = []  # seconds of each
        self._learner, predict, train = learner, learner.predict, learner.train

        def timed_predict(head: str, observations: np.ndarray, *rest: Any) -> Any:
            start = time.perf_counter()
            outputs = predict(head, observations, *rest)
            self.predictions[head].append((len(observations), time.perf_counter() - start))
            return outputs

        def timed_train(batch: dict[str, Any], *rates: float) -> Any:
            start = time.perf_counter()
            metrics = train(batch, *rates)
            self.updates.append(time.perf_counter() - start)
            return metrics

        learner.predict, learner.train = timed_predict, timed_train

    def clear(self) -> None:
        """Forgets all recorded calls."""
        self.predictions.clear(), self.updates.clear()

    def stop(self) -> None:
        """Stops recording."""
        del self._learner.predict, self._learner.train


class Window:
    """One measurement of a system.

    `tick` has to be called about ten times per second. It stops the system after the measurement.

    Args:
      system: a system that has not started yet.
      warmup: seconds before the measurement, after the first update and the first rollout of every process.
      measured: seconds of the measurement.
      profiled: seconds of profiling after the measurement.
    """

    def __init__(self, system: System, warmup: float, measured: float, profiled: float):
        self._system = system
        self._lengths = {"warmup": warmup, "measured": measured, "profiled": profiled}
        self._phase, self._since = "start", 0.0
        self._calls = Calls(system.learner)
        self._batch: dict[str, Any] = {}
        self._keep_batches(system.trainer)
        self._waits, self._queues = Reader(), defaultdict[str, list[int]](list)
        self._sampler: Sampler | None = None
        self._results: dict[str, Any] = {}

    def _keep_batches(self, trainer: Trainer) -> None:
        work = trainer.work

        def keep_and_work(batch: dict[str, Any]) -> None:
            self._batch = learned(batch)
            work(batch)

        trainer.work = keep_and_work  # type: ignore[method-assign]

    def close(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the results and the last training batch, after the run.

        The results are those of `_measured`. After profiling they also have "profile" (see `Sampler.shares`) and
        "profile_cost", the share of a core that profiling took.
        """
        self._calls.stop()
        if not self._results:
            raise RuntimeError("the run ended before it could be measured")
        return self._results, self._batch

    def tick(self, run: ParallelRunner) -> None:
        """Moves on to the next phase when it is time."""
        now = time.monotonic()
        if self._phase == "start":
            if self._system.learner.version and all(
                r.segment.end.min() >= run.system.spec.t_max for r in run.remotes()
            ):
                self._enter("warmup", now)
        elif now - self._since >= self._lengths[self._phase]:
            self._next(run, now)
        elif self._phase == "measured":
            pipes = self._system.requests | {"train": self._system.rollouts}
            for name, pipe in pipes.items():
                self._queues[name].append(len(pipe))

    def _enter(self, phase: str, now: float) -> None:
        self._phase, self._since = phase, now

    def _next(self, run: ParallelRunner, now: float) -> None:
        if self._phase == "warmup":
            self._begin(run)
            self._enter("measured", time.monotonic())
        elif self._phase == "measured":
            self._results = self._measured(run)
            if not self._lengths["profiled"]:
                self._system.stop("steps")
                return
            self._sampler = Sampler()
            self._sampler.start()
            self._enter("profiled", time.monotonic())
        elif self._sampler:
            self._sampler.__exit__()
            self._results |= {"profile": self._sampler.shares(), "profile_cost": self._sampler.cost}
            self._system.stop("steps")

    def _begin(self, run: ParallelRunner) -> None:
        self._agents = child_seconds()  # finding the processes takes a while, so it comes first
        run.snapshot()  # resets the means, so that the next snapshot covers the measurement only
        self._waits.read(self._system.pool.waited())
        self._calls.clear()
        self._threads, self._agents = thread_seconds(), child_seconds(self._agents)

    def _measured(self, run: ParallelRunner) -> dict[str, Any]:
        """Returns the results: rates in agent steps per second, waiting times, batch sizes, queues, bytes and memory.

        "cpu_ms" has the CPU milliseconds per agent step of "agents", of each role of the server's threads, and the rest
        of all cores as "unused" (idle, or used by other programs).
        """
        system, seconds = self._system, time.monotonic() - self._since
        predictions = {name: list(self._calls.predictions[name]) for name in system.requests}
        updates, waited = list(self._calls.updates), self._waits.read(system.pool.waited())
        threads, agents = thread_seconds(), child_seconds(self._agents)
        line = run.snapshot()
        if not (predictions["base"] and updates and waited.counts.any()):
            raise RuntimeError(f"no agent step or no update in {seconds:.1f} s; use a larger --seconds")
        sizes = {name: [size for size, _ in calls] for name, calls in predictions.items()}
        steps = sum(sizes["base"])
        busy = {"agents": sum(s - self._agents[child] for child, s in agents.items())}
        busy |= {name: s - self._threads.get(name, 0.0) for name, s in threads.items()}
        busy["unused"] = max(0.0, devices.cores() * seconds - sum(busy.values()))
        files = [remote.segment.fd for remote in run.remotes()]
        groups = system.layout.groups * len(files)
        wait = {"mean_ms": waited.mean_ms(), "p50_ms": waited.percentile_ms(50), "p95_ms": waited.percentile_ms(95)}
        wait["network_ms"] = 1e3 * sum(size * taken for size, taken in predictions["base"]) / steps
        wait["overhead"] = 1 - wait["network_ms"] / wait["mean_ms"]
        wait["share"] = float(waited.seconds.sum()) / (groups * seconds)
        return {
            "seconds": seconds,
            **{name: line[name] for name in ("pps", "tps", "agents", "policy_lag", "policy_lag_max")},
            "processes": len(files),
            "wait": wait,
            "predictions": {name: spread(of) for name, of in sizes.items()},
            "train_batch": line["batch_train"],
            "update_ms": 1e3 * float(np.mean(updates)),
            "queues": {name: {"mean": float(np.mean(of)), "max": max(of)} for name, of in self._queues.items()},
            "bytes": bytes_per_step(
                system.spec, system.layout.arrays(), sizes, self._batch, system.config.transfer == "float32"
            ),
            "cpu_ms": {name: 1e3 * of / steps for name, of in busy.items()},
            "memory": {
                "bytes": line["memory_bytes"],
                "with_full_rings": line["memory_bytes"] + ram.unwritten(files),
                "limit": line["memory_limit"],
            },
        }


def spread(sizes: Sequence[int]) -> dict[str, Any]:
    """Returns the mean, percentiles, maximum and number of prediction batches, and their number by size."""
    if not sizes:
        return {"count": 0, "sizes": {}}
    p5, p50, p95 = (float(p) for p in np.percentile(sizes, (5, 50, 95)))
    counts = {str(size): count for size, count in sorted(Counter(sizes).items())}
    known = {"mean": float(np.mean(sizes)), "p5": p5, "p50": p50, "p95": p95, "max": max(sizes)}
    return {"count": len(sizes), **known, "sizes": counts}


def bytes_per_step(
    spec: Spec,
    arrays: dict[str, tuple[tuple[int, ...], np.dtype]],
    sizes: dict[str, list[int]],
    batch: dict[str, Any],
    as_floats: bool = False,
) -> dict[str, float]:
    """Returns the bytes moved per agent step.

    Args:
      spec: the sizes of observations and states.
      arrays: shape and dtype of each array of a segment.
      sizes: sizes of predictions by head. Each observation of a "base" prediction is one agent step.
      batch: batch of an update.
      as_floats: whether observations are converted to float32 before they are passed to the learner.

    Returns:
      "written": bytes written to a ring.
      "gathered_predict" and "gathered_train": bytes copied from the rings.
      "to_device": bytes passed to the learner, before padding to fixed shapes.
    """
    rings = [(shape, dtype) for shape, dtype in arrays.values() if shape[:2] == arrays["frame"][0][:2]]
    observation = int(np.prod(spec.observation)) * np.dtype(spec.dtype).itemsize
    past = 4 * spec.state + 8 if spec.state else 0  # the state, the last action and the last reward
    predicted = sum(map(sum, sizes.values())) / sum(sizes["base"])
    gathered = {"gathered_predict": predicted * (observation + past), "gathered_train": _nbytes(batch)}
    gathered["gathered_train"] /= batch["base"]["mask"].size
    written = sum(int(np.prod(shape[2:])) * dtype.itemsize for shape, dtype in rings)
    handed = sum(gathered.values())
    if as_floats:
        rows = sum(part["mask"].size for part in batch.values() if "observations" in part)
        frames = predicted + rows / batch["base"]["mask"].size
        handed += frames * observation * (4 / np.dtype(spec.dtype).itemsize - 1)
    return {"written": float(written), **gathered, "to_device": handed}


def _nbytes(batch: Any) -> float:
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple) else None
    return float(np.asarray(batch).nbytes) if parts is None else sum(map(_nbytes, parts))
