"""Settings that follow from others, the kind of a run, and defaults that depend on the algorithm."""

from __future__ import annotations

from typing import Any, NamedTuple

from gunreal.config.schema import FIELDS, Config

MINIBATCH = 320  # agent steps of a minibatch of PPO, as in the default batch of the parallel runner
SMALL_BATCH = 80  # agent steps of a batch of A3C, and at least those of a group in a device run without PPO

# Fields whose default, 0 or -1, stands for a value that follows from other fields, the environment or the machine.
AUTOMATIC: tuple[str, ...] = ("reward_clip", "memory_limit", "device_batches", "min_batch", "learning_rate")
AUTOMATIC += ("ppo_minibatches", "entropy", "entropy_end", "threads", "nodes", "reducers")


def shown(name: str, value: Any) -> str:
    """A field's value in a message: "automatic" in place of a 0 or -1 that stands for another value."""
    return "automatic" if name in AUTOMATIC and value == FIELDS[name].default else repr(value)


def is_device(config: Config) -> bool:
    """Whether everything runs in compiled JAX programs, which needs JAX."""
    return config.runner == "device"


def is_cluster(config: Config) -> bool:
    """Whether several nodes train, which needs Ray."""
    return config.nodes > 1 or bool(config.cluster)


def per_process(config: Config) -> int:
    """Number of agents per process: the largest divisor of `agents` that is at most `agents_per_process`."""
    return largest_divisor(config.agents, config.agents_per_process)


def batch_steps(config: Config) -> int:
    """Minimum size of a training batch, in agent steps: `min_batch`, or what suits the algorithm."""
    return config.min_batch or (960 if config.algorithm == "ppo" else SMALL_BATCH)


def rollouts_per_batch(config: Config) -> int:
    """Number of rollouts that make up the minimum training batch. A short run has smaller batches."""
    return -(-min(batch_steps(config), config.steps) // config.t_max)


def steps_without_update(config: Config) -> int:
    """Number of agent steps within which a run with processes does no update, if its agents act at the same pace.

    The agents of a process then end their rollouts together, and each takes one step more for the value after its end.
    """
    together = config.agents if config.serial else per_process(config)
    rounds = -(-rollouts_per_batch(config) // together)
    return together * (rounds * config.t_max + 1)


def minibatch_count(config: Config) -> int:
    """Number of minibatches of PPO: `ppo_minibatches`, or what suits the size of the batch."""
    if config.ppo_minibatches:
        return config.ppo_minibatches
    if not is_device(config):
        return 3
    return max(3, config.agents // device_groups(config) * config.t_max // MINIBATCH)


def first_rate(config: Config) -> float:
    """Learning rate at the start: `learning_rate`, or what suits the algorithm and its batches."""
    return config.learning_rate or (8e-4 if config.algorithm == "ppo" and not is_device(config) else 5e-4)


def entropy_weight(config: Config) -> float:
    """Weight of the entropy bonus at the start: `entropy`, or what suits the algorithm."""
    return config.entropy if config.entropy >= 0 else 0.02 if config.algorithm == "ppo" else 0.01


class Rates(NamedTuple):
    """What changes linearly over the budget. `progress` is the share of it that has been used."""

    learning_rate: float
    entropy: float
    progress: float = 0.0


def rates(config: Config, step: int) -> Rates:
    """The rates after a number of agent steps."""
    share, entropy = min(step / config.steps, 1.0), entropy_weight(config)
    entropy_end = config.entropy_end if config.entropy_end >= 0 else entropy
    rate = anneal(first_rate(config), config.learning_rate_end, share)
    return Rates(rate, anneal(entropy, entropy_end, share), share)


def anneal(start: float, end: float, share: float) -> float:
    """Interpolates linearly from `start` at share 0 to `end` at share 1 of the budget."""
    return start + (end - start) * min(max(share, 0.0), 1.0)


def device_groups(config: Config) -> int:
    """Number of groups of agents in a device run: `device_batches`, or what suits the algorithm."""
    if config.device_batches or config.algorithm == "ppo":
        return config.device_batches or 1
    groups = (n for n in range(config.t_max, 0, -1) if config.t_max % n == config.agents % n == 0)
    return next((n for n in groups if config.agents // n * config.t_max >= SMALL_BATCH), 1)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)
