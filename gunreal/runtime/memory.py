"""The memory that a run takes, bounded before any of it is allocated."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from gunreal.acting.agent import group_slices
from gunreal.acting.pool import rollouts_that_wait
from gunreal.config.derived import per_process, replay_steps, rollouts_per_batch
from gunreal.config.objective import load_objective
from gunreal.config.schema import Config, ConfigError, is_auto
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask
from gunreal.records import recordings
from gunreal.runtime import ram
from gunreal.runtime.scheduler import MEMORY_SHARE
from gunreal.tasks.recorded import recorded_fields

_PROCESS = 100 * 2**20  # bytes per agent process without its rings; Python, NumPy and 16 Atari games take 79 MiB
_UPDATES = 500 * 2**20  # bytes that the first updates add to the server: with three tasks and TensorFlow on Catch


def rings(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> Layout:
    """The memory layout of one agent process, still without the mailboxes of the tasks."""
    agents = per_process(config)
    slots = rollouts_that_wait(-(-config.min_batch // config.t_max), agents, agents)  # one process must fill a batch
    groups = len(group_slices(agents))
    return Layout(spec, agents, groups, replay_steps(config), recorded_fields(tasks, spec), slots, {})


def check(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> None:
    """Raises ConfigError if a run with processes, or a serial run, cannot fit into the memory of this machine.

    Nothing has been allocated then. The framework still adds its own memory, so a run that passes may yet be refused.
    """
    limit = ram.limit() if is_auto(config, "memory_limit") else config.memory_limit
    loaded = sum(recordings.size(path, spec) for task in tasks if (path := task.source(spec)))
    affordable(config, rings(config, spec, tasks), tasks, limit - int(loaded / MEMORY_SHARE))


def affordable(config: Config, layout: Layout, tasks: Sequence[AuxiliaryTask], limit: int) -> int:
    """Number of agent processes that fit into the memory limit with full rings, next to this process and a batch.

    A serial run has the rings of all processes in this one.

    Raises:
      ConfigError: none fits, or not all of them in a serial run.
    """
    server = ram.in_use([os.getpid()]) + _UPDATES + _batch(config, layout.spec, tasks)
    each, least = layout.nbytes() + (0 if config.runner == "serial" else _PROCESS), 1
    what, lower = f"a process of {layout.agents} agents", ["--agents_per_process", "--min_batch"]
    if config.runner == "serial":
        least, what, lower[0] = config.agents // layout.agents, f"{config.agents} agents", "--agents"
    fitting = int((MEMORY_SHARE * limit - server) // each)
    if fitting < least:
        lower += ["--replay_size"] if layout.replay_size else []
        raise ConfigError(
            f"the memory limit of {_mib(limit)} leaves no room for {what}: the server takes {_mib(server)} and {what} "
            f"{_mib(least * each)}; raise --memory_limit, or lower {', '.join(lower)} or the size of an observation "
            f"({_observation(layout.spec) / 2**10:,.0f} KiB)"
        )
    return fitting


def _batch(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> int:
    """Bytes of the observations of a training batch, and of the policies for them."""
    steps = spec.t_max + sum(task.per_rollout * task.length(spec.t_max) for task in tasks)
    phase = load_objective(config).phase()
    steps += phase.batches * spec.t_max if phase else 0  # which are kept for it
    return rollouts_per_batch(config) * steps * (_observation(spec) + 4 * spec.num_actions)


def _observation(spec: Spec) -> int:
    return math.prod(spec.observation) * np.dtype(spec.dtype).itemsize


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
