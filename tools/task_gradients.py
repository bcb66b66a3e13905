"""How strongly do the auxiliary tasks change the shared layers?

  python tools/task_gradients.py runs/my-run
  python tools/task_gradients.py runs/my-run --updates 50

The program continues a copy of a run from its newest checkpoint. For some of its updates, it computes the gradient of
each weighted loss with respect to the layers that all tasks share. It prints medians:

  norm      norm of the gradient
  relative  the norm, divided by that of the actor-critic
  cosine    cosine of the angle between the gradient and that of the actor-critic

A task with a small relative norm has no effect, and one with a large norm and a cosine near 0 acts like noise.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common.command_line import Parser, check_positive, check_processes, reason

import gunreal
from gunreal.config.derived import rates
from gunreal.config.schema import ConfigError
from gunreal.envs.step import AgentFailure
from gunreal.learning.learner import Gradient, Learner
from gunreal.run import Run
from gunreal.runtime import trainer
from gunreal.runtime.system import build_learner, on_this_machine
from gunreal.tasks import registry

_EVERY = 5  # updates between two that are measured
_ENDLESS = 10**12  # agent steps
# The copy must not add to the run's curves at Weights & Biases, whose id it has, nor start evaluations.
_ALONE: dict[str, Any] = {"track": "off", "eval_steps": 0, "eval_minutes": 0.0}

_compute = Learner.gradient  # not the replacement


class Probe:
    """Takes the gradients of training batches apart.

    Args:
      run: the run.
      updates: number of updates to measure. Training is then interrupted.

    Attributes:
      found: for each measured update, the gradients by "base" and the names of the tasks, float32 vectors.
    """

    def __init__(self, run: Run, updates: int):
        self._updates, self._seen = updates, 0
        self._tasks = [task.name for task in run.tasks]  # config.tasks may name classes
        self.found: list[dict[str, np.ndarray]] = []
        self._learners = {}
        for part in ("base", *self._tasks):  # learners that learn from the actor-critic and at most one task
            options = {task: {**run.config.task.get(task, {})} for task in self._tasks}
            for task in set(self._tasks) - {part}:
                options[task]["weight"] = 0.0
            tasks = registry.load_tasks(run.config.tasks, options)
            self._learners[part] = build_learner(on_this_machine(run.config), run.spec, tasks)

    def gradient(self, learner: Learner, batch: Mapping[str, Any], *now: Any) -> Gradient:
        """Replaces `Learner.gradient`."""
        self._seen += 1
        if len(self.found) < self._updates and self._seen % _EVERY == 0 and all(task in batch for task in self._tasks):
            self.found.append(self._apart(learner, batch, *now))
            if len(self.found) == self._updates:
                os.kill(os.getpid(), signal.SIGINT)
        return _compute(learner, batch, *now)

    def _apart(self, learner: Learner, batch: Mapping[str, Any], *now: Any) -> dict[str, np.ndarray]:
        state, gradients = learner.get_state(), {}
        for part, one in self._learners.items():
            one.assign(state, learner.version)
            values = zip(one.network.names, _compute(one, batch, *now).values, strict=True)
            shared = [np.asarray(value).ravel() for name, value in values if name.startswith("torso/")]
            gradients[part] = np.concatenate(shared)
        return {part: values - (part != "base") * gradients["base"] for part, values in gradients.items()}


def table(found: Sequence[Mapping[str, np.ndarray]]) -> str:
    """The medians as a Markdown table."""
    lines = ["| loss | norm | relative | cosine |", "|---|---|---|---|"]
    for part in found[0]:
        rows = []
        for gradients in found:
            base, own = gradients["base"], gradients[part]
            size, norm = float(np.linalg.norm(base)), float(np.linalg.norm(own))
            rows.append((norm, norm / max(size, 1e-12), float(base @ own) / max(size * norm, 1e-12)))
        norm, relative, cosine = np.median(rows, axis=0)
        lines.append(f"| {part} | {norm:.4f} | {relative:.3f} | {cosine:.2f} |")
    return "\n".join(lines)


def measure(run: Run, updates: int) -> list[dict[str, np.ndarray]]:
    """The gradients of some updates, as `Probe.found`. There are fewer if the user interrupts the training."""
    with tempfile.TemporaryDirectory() as folder:
        copy = gunreal.load(shutil.copytree(run.path, Path(folder) / run.path.name))
        probe, now = Probe(copy, updates), rates(run.config, run.step)  # with the larger budget, they would begin anew
        with (
            mock.patch.object(trainer, "rates", lambda *_: now),
            mock.patch.object(Learner, "gradient", lambda *args: probe.gradient(*args)),
        ):
            gunreal.resume(copy, show=False, steps=_ENDLESS, **_ALONE)
    return probe.found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0 on success, 1 for failures, 2 for bad input, 130 if interrupted."""
    try:
        parser = Parser("task_gradients.py", __doc__)
        parser.add_argument("run", metavar="RUN", help="folder of a run with auxiliary tasks")
        parser.add_argument("--updates", type=int, default=20, metavar="N", help="updates to measure (default: 20)")
        options = parser.parse_args(argv)
        check_positive("updates", options.updates)
        run = gunreal.load(options.run)
        check_processes(run.config)
        if not run.config.tasks:
            raise ConfigError(f"{options.run} has no auxiliary tasks; choose a run that was trained with --tasks")
        found = measure(run, options.updates)
    except (ConfigError, FileNotFoundError) as error:
        print(f"task_gradients.py: {error}", file=sys.stderr)
        return 2
    except (AgentFailure, OSError) as error:
        print(f"task_gradients.py: {reason(error)}", file=sys.stderr)
        return 1
    if len(found) < options.updates:
        return 130
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
