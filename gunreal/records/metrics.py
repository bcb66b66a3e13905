"""Metrics: counted by all threads, collected every few seconds, and written as JSON lines and TensorBoard events.

| key | meaning |
|---|---|
| `step` | agent steps since the start of the run |
| `seconds` | training time of the run, including the time before it was resumed |
| `pps` | agent steps taken (predictions of actions) per second, since the last line |
| `tps` | agent steps trained per second, since the last line |
| `score_mean`, `score_max` | mean and maximum unclipped score of the last 100 finished episodes |
| `episodes`, `updates`, `trained` | finished episodes, updates and agent steps trained on, since the start of the run |
| `policy_lag`, `policy_lag_max` | mean and maximum number of updates between acting and training, since the last line |
| `agents`, `predictors`, `trainers` | current N_A, N_P and N_T |
| `memory_bytes`, `memory_limit` | memory used by all processes together and its limit, in bytes |
| `wait_ms` | mean time that a group of agents waits for its actions, in milliseconds, since the last line |
| `queue_NAME` | number of waiting requests in the prediction queue of NAME (`base`, or a task that bootstraps) |
| `queue_train` | number of rollouts that wait for a trainer |
| `batch_NAME`, `batch_train` | mean number of observations per prediction for NAME, and of agent steps per update |
| `loss_NAME`, `entropy`, `value_mean`, `grad_norm` | means over the updates since the last line |
| `NAME_METRIC` | mean of a metric of the task NAME, or of an objective's further phase (`phase`) |
| `return_mean`, `return_deviation` | mean and standard deviation of the returns, averages since the last line |
| `bonus_return_mean`, `bonus_return_deviation` | the same of bonuses that have a value of their own |
| `learning_rate` | learning rate of the newest update |
| `eval_score_mean`, `eval_score_std` | mean and standard deviation of the unclipped scores of the latest evaluation |
| `eval_length_mean` | mean length of the episodes of the latest evaluation, in agent steps |
| `eval_step` | agent step of the weights that the latest evaluation used |
| `skipped`, `restarts` | skipped non-finite updates and restarted agent processes, since the start of the run |
| `resumed` | true in the line after which a run was resumed |

A run on several nodes also has these metrics. Those above are then sums or means over all nodes. An update is a round.

| key | meaning |
|---|---|
| `nodes` | number of nodes that take part |
| `replaced` | processes that took the place of a lost node or reducer, since the start or resume |
| `late`, `refused` | gradients that missed their round, and gradients that were not finite, since the start or resume |
| `round_ms` | mean time of a round, in milliseconds |
| `overhead_ms` | mean part of a round in which its slowest node did not compute, in milliseconds |
| `contributions` | mean number of gradients in a round |
| `staleness` | mean number of updates between the weights of a gradient and its arrival |
| `traffic_mb` | weights and gradients of all nodes per round, in MiB |
| `nodeI_pps`, `nodeI_lag`, `nodeI_missed` | predictions per second and policy lag of node I, and its late gradients |

Missing values are null.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.config.values import is_number
from gunreal.config.warning import warn
from gunreal.records.mean import Mean

FILE = "metrics.jsonl"
_COUNTS = ("step", "trained", "updates", "episodes", "skipped", "restarts")
_GAUGES = ("agents", "predictors", "trainers", "memory_bytes", "memory_limit", "wait_ms")
_MEANS, _LATEST = ("entropy", "value_mean", "return_mean", "return_deviation", "grad_norm"), ("learning_rate",)
_LOSSES = ("total", "policy", "value")  # losses that every run has

_ENOUGH = 10  # episodes that a mean score needs to be meaningful
_FULL = 100  # episodes over which it is taken, once there are as many


class RunMetrics:
    """The metrics counted by the threads of a run. All methods are thread-safe.

    Args:
      queues: names of the prediction queues: "base", then the tasks with a bootstrap.
      losses: names of further losses besides total, policy and value. Every line has the keys `loss_<name>`. Other
        scalars of updates are recorded once they have a value.
      state: `state()` of the run to resume.
    """

    def __init__(
        self, queues: Sequence[str] = ("base",), losses: Sequence[str] = (), state: Mapping[str, Any] | None = None
    ):
        self._lock = threading.Lock()
        self._queues = tuple(queues)
        self._scalars = (*(f"loss_{name}" for name in (*_LOSSES, *losses)), *_MEANS, *_LATEST)
        self._own: dict[str, None] = {}  # names of other scalars, in the order of their first values
        state = state or {}
        self._counts = {name: int(state.get(name, 0)) for name in _COUNTS}
        self._scores: deque[float] = deque(state.get("scores", ()), maxlen=100)
        self._earlier_seconds = float(state.get("seconds", 0.0))
        self._start = self._last = time.monotonic()
        self._end: float | None = None
        self._last_counts = dict(self._counts)
        self._means: defaultdict[str, Mean] = defaultdict(Mean)
        self._latest: dict[str, float] = {}
        self._lag_max: int | None = None
        self._has_warned = False

    @property
    def step(self) -> int:
        """Agent steps since the start of the run."""
        return self._counts["step"]

    @property
    def steps_trained(self) -> int:
        """Agent steps trained on since the start of the run."""
        return self._counts["trained"]

    def acted(self, steps: int) -> None:
        """Records that agents took `steps` steps."""
        self._add("step", steps)

    def predicted(self, queue: str, size: int) -> None:
        """Records a prediction of `size` observations for `queue`."""
        with self._lock:
            self._means[f"batch_{queue}"].add(size)

    def trained(
        self, steps: int, lags: Iterable[int], scalars: Mapping[str, float], skipped: bool = False, batch: int = 0
    ) -> None:
        """Records a learner update.

        Args:
          steps: number of agent steps that are trained on for the first time.
          lags: number of updates between acting and this update, for each agent step.
          scalars: `loss_<name>`, "entropy", "value_mean", "grad_norm", "learning_rate" and others. Means ignore
            non-finite values.
          skipped: whether the update was not finite and was skipped.
          batch: number of agent steps in the update, if different from `steps`.
        """
        behind = np.asarray(list(lags), np.int64)
        with self._lock:
            self._counts["updates"] += 1
            self._counts["trained"] += steps
            self._counts["skipped"] += skipped
            self._means["batch_train"].add(batch or steps)
            for name, value in scalars.items():
                if name in _LATEST:
                    self._latest[name] = float(value)
                else:
                    self._means[name].add(float(value))
            if len(behind):
                self._means["policy_lag"].add(float(behind.sum()), len(behind))
                self._lag_max = max(self._lag_max or 0, int(np.max(behind)))
            warns, self._has_warned = skipped and not self._has_warned, skipped or self._has_warned
        if warns:
            wrong = [name for name, value in scalars.items() if not math.isfinite(value)]
            parts = [name for name in wrong if name not in ("loss_total", "grad_norm")] or wrong
            warn(f"an update is skipped, because {' and '.join(parts) or 'an observation'} is not finite")

    def episode(self, score: float) -> None:
        """Records a finished episode. `score` is the sum of its raw rewards."""
        with self._lock:
            self._counts["episodes"] += 1
            self._scores.append(float(score))

    def stop_clock(self) -> None:
        """Ends the time of the run. What comes later, such as a last evaluation, is not training time."""
        self._end = time.monotonic()

    def restarted(self) -> None:
        """Records the restart of an agent process."""
        self._add("restarts", 1)

    def score_mean(self) -> float | None:
        """Mean score of the last 100 episodes, which decides on the best checkpoint. None before the tenth episode."""
        with self._lock:
            return float(np.mean(self._scores)) if len(self._scores) >= _ENOUGH else None

    def state(self) -> dict[str, Any]:
        """The state to save in a checkpoint, as values for JSON."""
        with self._lock:
            return {**self._counts, "scores": list(self._scores), "seconds": self._seconds(self._now())}

    def snapshot(
        self, gauges: Mapping[str, Any], queues: Mapping[str, int], now: float | None = None
    ) -> dict[str, Any]:
        """Returns one line of metrics with the keys above and starts the next interval.

        Args:
          gauges: current "agents", "predictors", "trainers", "memory_bytes" and "memory_limit", and "wait_ms" of the
            interval.
          queues: current length of each prediction queue and of "train".
          now: time as given by `time.monotonic()`. The default is the current time.
        """
        now = self._now() if now is None else now
        with self._lock:
            elapsed = max(now - self._last, 1e-9)
            rate = {name: (self._counts[name] - self._last_counts[name]) / elapsed for name in ("step", "trained")}
            line: dict[str, Any] = {"step": self._counts["step"], "seconds": round(self._seconds(now), 3)}
            line |= {"pps": round(rate["step"], 1), "tps": round(rate["trained"], 1)}
            line["score_mean"] = float(np.mean(self._scores)) if self._scores else None
            line["score_max"] = max(self._scores, default=None)
            line |= {name: self._counts[name] for name in _COUNTS if name != "step"}
            line["policy_lag"], line["policy_lag_max"] = self._mean("policy_lag"), self._lag_max
            line |= {name: gauges.get(name) for name in _GAUGES}
            names = (*self._queues, "train")
            line |= {f"queue_{name}": queues.get(name) for name in names}
            line |= {f"batch_{name}": self._mean(f"batch_{name}") for name in names}
            for name in self._scalars:
                line[name] = self._latest.get(name) if name in _LATEST else self._mean(name)
            self._own |= {name: None for name in self._means if name not in line}
            line |= {name: self._mean(name) for name in self._own}
            self._means.clear()
            self._lag_max, self._last, self._last_counts = None, now, dict(self._counts)
        return line

    def take(self) -> dict[str, Any]:
        """What has been counted since the last call, for `add` in another process. It takes the place of `snapshot`."""
        with self._lock:
            counts = {name: self._counts[name] - self._last_counts[name] for name in _COUNTS}
            scores = list(self._scores)[-counts["episodes"] :] if counts["episodes"] else []
            taken = {"counts": counts, "scores": scores, "means": dict(self._means), "lag_max": self._lag_max}
            self._means.clear()
            self._lag_max, self._last_counts = None, dict(self._counts)
        return taken

    def add(self, taken: Mapping[str, Any]) -> None:
        """Adds what another process has counted (`take`)."""
        with self._lock:
            for name, count in taken["counts"].items():
                self._counts[name] += count
            self._scores.extend(taken["scores"])
            for name, mean in taken["means"].items():
                self._means[name].merge(mean)
            if taken["lag_max"] is not None:
                self._lag_max = max(self._lag_max or 0, taken["lag_max"])

    def _add(self, name: str, count: int) -> None:
        with self._lock:
            self._counts[name] += count

    def _mean(self, name: str) -> float | None:
        mean = self._means.get(name)
        return mean.value() if mean else None

    def _now(self) -> float:
        return time.monotonic() if self._end is None else self._end

    def _seconds(self, now: float) -> float:
        return self._earlier_seconds + now - self._start


def first_reach(lines: Iterable[Mapping[str, Any]], score: float, key: str) -> Any:
    """The value of `key` in the first line whose mean over 100 episodes is at least `score`, or None."""
    counted = (line for line in lines if line["score_mean"] is not None and line.get("episodes", 0) >= _FULL)
    return next((line[key] for line in counted if line["score_mean"] >= score), None)


def lines(run_dir: str | Path) -> list[dict[str, Any]]:
    """The lines of a run, none before its first one. Raises ConfigError if they are damaged or cannot be read."""
    file = Path(run_dir) / FILE
    try:
        return read(file) if file.exists() else []
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def read(path: str | Path) -> list[dict[str, Any]]:
    """Reads the lines of a `metrics.jsonl`, oldest first. An incomplete last line is left out.

    Raises:
      ConfigError: another line is not valid JSON, or has no step that is a number. The message names the file and line.
    """
    lines = []
    texts = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    for number, text in enumerate(texts, 1):
        if not text.strip("\0 "):
            continue
        try:
            line, wrong = json.loads(text), ""
        except json.JSONDecodeError:
            if number == len(texts):
                break
            line, wrong = {}, "is not valid JSON"
        if not isinstance(line, dict) or "step" not in line:
            wrong = wrong or "has no step"
        elif not is_number(line["step"]):
            wrong = f"has the step {line['step']!r}, which is not a number"
        if wrong:
            raise ConfigError(f"{path} is damaged: line {number} {wrong}; remove that line")
        lines.append(line)
    return lines
