"""The configuration of a run: one frozen dataclass, a field per line with its unit; defaults < TOML file < flags.

Flags are made from the same fields in `gunreal.flags`; the folder of a run keeps the resolved TOML (`gunreal.runs`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gunreal import units


def field(default: Any, help: str, **limits: Any) -> Any:
    """A field with its one-line help and its limits: `choices`, `low` and `high` (inclusive), `above` and `below`."""
    metadata = {"help": help, **limits}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a run. Every field is a command-line flag and a TOML key of the same name.

    Fields are checked by `gunreal.checks.check`, which raises `ConfigError` with one line that names the fix.
    """

    # Environment
    env: str = field("ALE/Pong-v5", "a Gymnasium id, or module:id")
    env_args: dict[str, Any] = field({}, "keyword arguments of gymnasium.make")
    protocol: str = field(
        "deterministic",
        "Atari: deterministic (the papers': no sticky actions) or v5 (sticky 0.25)",
        choices=("deterministic", "v5"),
    )
    emulator: str = field("ale", "Atari: ale-py, or the library's own emulator", choices=("ale", "own"))
    observation: str = field("gray", "images are learned from in gray or in colour", choices=("gray", "rgb"))
    image_key: str = field("", "entry of a Dict observation that is learned from; empty: its image")
    frame_size: int = field(84, "pixels, height and width", low=20, high=512)
    frame_stack: int = field(4, "frames of one observation; vectors are not stacked", low=1, high=64)
    reward_clip: float = field(1.0, "rewards learned from are clipped to +-this; 0: never", low=0)
    # Tasks
    tasks: tuple[str, ...] = field((), "auxiliary tasks: entry-point names, or module:Class")
    task: dict[str, dict[str, Any]] = field({}, "options of tasks: pc.weight=0.05,pc.discount=0.95")
    t_max: int = field(20, "agent steps of a rollout and of a replay sequence", low=1, high=1000)
    replay_size: int = field(2000, "agent steps kept per agent", low=1)
    replay_fill: str = field(
        "sequence",
        "auxiliary learning starts when the ring can serve a sequence, or is full",
        choices=("sequence", "full"),
    )
    # Run
    logdir: str = field("runs", "folder of runs")
    name: str = field("", "folder of this run; empty: made from environment, tasks and time")
    steps: int = field(6_000_000, "budget in agent steps", low=1)
    seed: int = field(1, "of everything that is drawn by chance", low=0, high=2**31 - 1)
    serial: bool = field(False, "one thread in lockstep, bit-reproducible")
    checkpoint_minutes: float = field(5.0, "minutes between checkpoints", above=0)
    keep_checkpoints: int = field(3, "newest ones kept, beside the best", low=1)
    metrics_seconds: float = field(10.0, "seconds between lines of metrics.jsonl", above=0)
    # System
    agents: int = field(32, "environments that are stepped at the same time", low=1, high=4096)
    agents_per_process: int = field(
        16, "at most: the largest divisor of agents up to it is used; they step in two groups", low=1, high=1024
    )
    predictors: int = field(1, "threads per prediction queue", low=1, high=64)
    trainers: int = field(
        1,
        "training threads: on a CPU they compute gradients at the same time, on a GPU a second gathers the next batch",
        low=1,
        high=64,
    )
    run_ahead: int = field(
        1, "agent steps after a rollout before it is trained on: few keep the policy lag low, many hide latency", low=0
    )
    scheduler: str = field("off", "moves agents, predictors and trainers", choices=("annealing", "queue", "off"))
    scheduler_seconds: float = field(20.0, "seconds between moves", above=0)
    memory_limit: int = field(
        0, "bytes that all processes together may use (800MB, 2GiB); 0: the cgroup's limit or the machine's RAM", low=0
    )
    max_batch: int = field(256, "observations in one prediction", low=1)
    env_timeout: float = field(120.0, "seconds of an environment step after which its process is restarted", above=0)
    # Learner
    backend: str = field("tensorflow", "the framework", choices=("tensorflow", "jax"))
    layout: str = field("auto", "of convolutions; auto: by device", choices=("nchw", "nhwc", "auto"))
    network: str = field(
        "auto",
        "small (the papers'), large (GA3C's with a third convolution), lstm (UNREAL's) or mlp; auto: small or mlp",
        choices=("auto", "small", "large", "lstm", "mlp"),
    )
    first_stride: int = field(4, "stride of the large network's first convolution", low=1, high=4)
    hidden: int = field(256, "units of the torso's last layer", low=1)
    min_batch: int = field(80, "agent steps of the smallest training batch", low=1)
    optimizer: str = field("adam", "of all the weights", choices=("rmsprop", "adam"))
    learning_rate: float = field(5e-4, "at the start", above=0)
    learning_rate_end: float = field(0.0, "reached linearly at the end of the budget", low=0)
    rms_decay: float = field(0.99, "of RMSProp's mean of squared gradients", low=0, below=1)
    epsilon: float = field(1e-5, "of the optimiser, inside RMSProp's square root", above=0)
    max_grad_norm: float = field(0.5, "gradients are clipped to this global norm; 0: never", low=0)
    discount: float = field(0.99, "gamma", low=0, high=1)
    entropy: float = field(0.01, "beta, weight of the policy's entropy", low=0)
    reduction: str = field(
        "mean",
        "the loss is a batch's mean over agent steps, or GA3C's sum (large epsilons and clipping tell them apart)",
        choices=("mean", "sum"),
    )
    value_weight: float = field(0.5, "of the value loss, 0.5 (R - V)^2", low=0)
    correction: str = field(
        "epsilon",
        "of what lagging policies have done: GA3C's epsilon inside log pi, or V-trace",
        choices=("epsilon", "vtrace"),
    )
    precision: str = field(
        "float32",
        "of convolutions and dense layers; weights, losses and optimiser are float32",
        choices=("float32", "bfloat16"),
    )
    threads: int = field(
        0,
        "that one operation of the network uses on the CPU; 0: a quarter of the cores, as agents and other calls use "
        "the rest, or with --serial all of them",
        low=0,
    )
    transfer: str = field(
        "uint8", "of images to the device; float32, as GA3C's, moves four times the bytes", choices=("uint8", "float32")
    )
    log_epsilon: float = field(1e-6, "GA3C's epsilon inside log pi", above=0, below=1)


class ConfigError(ValueError):
    """A configuration that can't run; its message is one line that names the fix."""


FIELDS = {f.name: f for f in dataclasses.fields(Config)}
TYPES: dict[str, Any] = typing.get_type_hints(Config)


def per_process(config: Config) -> int:
    """Agents in each process: the largest divisor of `agents` that is at most `agents_per_process`."""
    return largest_share(config.agents, config.agents_per_process)


def largest_share(agents: int, most: int) -> int:
    """The largest divisor of `agents` that is at most `most`."""
    return next(n for n in range(min(agents, most), 0, -1) if agents % n == 0)


def close_match(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown word: `; did you mean ...?`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def typed(name: str, value: Any) -> Any:
    """`value` as the type of field `name`: 8e6 may stand for an int, an int for a float, a list for a tuple.

    Raises:
      ConfigError: it is of another type.
    """
    kind = TYPES[name]
    if kind is int and is_number(value) and float(value).is_integer():
        return int(value)
    if kind is float and is_number(value):
        return float(value)
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if name == "tasks" and isinstance(value, list | tuple) and all(isinstance(task, str) for task in value):
        return tuple(value)
    if name == "env_args" and _is_table(value):
        return value
    if name == "task" and _is_table(value) and all(_is_table(options) for options in value.values()):
        return value
    kinds = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    tables = {"tasks": "a list of strings", "task": "a table of options for each task", "env_args": "a table"}
    raise ConfigError(f"{name} is {value!r}, but has to be {kinds.get(kind) or tables[name]}")


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number; true and false are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def load(path: str | Path) -> dict[str, Any]:
    """The fields that a TOML file sets, by name, each of its field's type; `Config(**load(path))` is the whole.

    Raises:
      ConfigError: the file can't be read, is no TOML, or has an unknown key or a value of the wrong type.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}; check the path") from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{path} is no valid TOML: {error}") from error
    for name in found:
        if name not in FIELDS:
            raise ConfigError(f"{path}: unknown key {name}{close_match(name, FIELDS) or '; leave it out'}")
    try:
        if isinstance(found.get("memory_limit"), str):
            found["memory_limit"] = units.parse_size(found["memory_limit"])
        return {name: typed(name, value) for name, value in found.items()}
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def save(config: Config, path: str | Path) -> None:
    """Writes all fields as TOML; `Config(**load(path)) == config`. Raises OSError."""
    Path(path).write_bytes(tomli_w.dumps(dataclasses.asdict(config)).encode())
