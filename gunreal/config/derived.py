"""What follows from the settings of a run: its kind, the sizes of its batches, and its rates."""

from __future__ import annotations

from typing import NamedTuple

from gunreal.config.objective import load_objective
from gunreal.config.schema import Config


def per_process(config: Config) -> int:
    """Number of agents per process: the largest divisor of `agents` that is at most `agents_per_process`."""
    return largest_divisor(config.agents, config.agents_per_process)


def rollouts_per_batch(config: Config) -> int:
    """Number of rollouts that make up the minimum training batch. A short run has smaller batches."""
    return -(-min(config.min_batch, config.steps) // config.t_max)


def replay_steps(config: Config) -> int:
    """Number of steps of each agent to keep for tasks and objectives that replay: `replay_size`, or 0 without any."""
    return config.replay_size if config.tasks or load_objective(config).replays else 0


def steps_without_update(config: Config) -> int:
    """Number of agent steps within which a run with processes does no update, if its agents act at the same pace.

    The agents of a process then end their rollouts together, and each takes one step more for the value after its end.
    """
    together = config.agents if config.runner == "serial" else per_process(config)
    rounds = -(-rollouts_per_batch(config) // together)
    return together * (rounds * config.t_max + 1)


class Rates(NamedTuple):
    """What changes linearly over the budget. `progress` is the share of it that has been used."""

    learning_rate: float
    entropy: float
    progress: float = 0.0


def rates(config: Config, step: int) -> Rates:
    """The rates after a number of agent steps."""
    share = min(step / config.steps, 1.0)
    rate = anneal(config.learning_rate, config.learning_rate_end, share)
    return Rates(rate, anneal(config.entropy, config.entropy_end, share), share)


def anneal(start: float, end: float, share: float) -> float:
    """Interpolates linearly from `start` at share 0 to `end` at share 1 of the budget."""
    return start + (end - start) * min(max(share, 0.0), 1.0)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)
