"""The configuration of a run: one frozen dataclass, whose fields can be set in a TOML file and by flags.

`gunreal.config.flags` makes the command-line flags from these fields. `gunreal.config.folders` saves the resolved
configuration as TOML in the folder of the run.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable
from typing import Any

from gunreal.config.fields import AUTO, Settings, field
from gunreal.config.runners import Cluster, Device, Processes, Threads
from gunreal.config.values import converted, one_line


@dataclasses.dataclass(frozen=True)
class Environment(Settings):
    """The environment and its observations."""

    env: str = field(
        "ALE/Pong-v5",
        "Environment: a Gymnasium id, module:id (imports the module first), module:function or module:Class",
    )
    env_args: dict[str, Any] = field({}, "Keyword arguments of the environment, as in key=value,key=value")
    protocol: str = field(
        "deterministic",
        "Protocol for Atari games: deterministic (as in the papers) or v5 (sticky actions with probability 0.25)",
        choices=("deterministic", "v5"),
        of=("Atari",),
    )
    emulator: str = field(
        AUTO,
        "Emulator for Atari games: own (gunreal's), ale (ale-py), or auto (own if it supports the game, else ale)",
        choices=(AUTO, "own", "ale"),
        of=("Atari",),
    )
    observation: str = field("gray", "Color mode of image observations", choices=("gray", "rgb"), of=("images",))
    image_key: str = field(AUTO, "Entry of a Dict observation to learn from. auto means its image", of=("processes",))
    vector_keys: str = field(
        AUTO,
        "Entries of a Dict observation to learn from beside its image, as in compass,goal. auto means all "
        "numbers and vectors, and none in DeepMind Lab",
        of=("processes",),
    )
    frame_size: int = field(84, "Height and width of a frame, in pixels", low=20, high=512, of=("images",))
    frame_stack: int = field(
        4, "Number of frames in one observation. Vector observations are not stacked", low=1, high=64, of=("images",)
    )
    normalize_observations: str = field(
        "element",
        "Normalization of observations by running moments: element (each element of a frame), channel, or off",
        choices=("element", "channel", "off"),
    )
    reward_clip: float = field(
        AUTO,
        "Bound for clipping rewards. 0 disables clipping. auto means 1 for Atari games and 0 otherwise",
        low=0,
    )


@dataclasses.dataclass(frozen=True)
class Tasks(Settings):
    """The auxiliary tasks and their replay."""

    tasks: tuple[str, ...] = field(
        (),
        "Auxiliary tasks, comma-separated: names from `gunreal tasks` or module:Class. auto means the recommended ones",
    )
    task: dict[str, dict[str, Any]] = field({}, "Task options, as in pc.weight=0.05,pc.discount=0.95")
    task_share: float = field(
        1.0,
        "Share of the updates (with PPO, of the first epoch) in which the tasks take part. Smaller values are faster",
        above=0,
        high=1,
        of=("tasks",),
    )
    t_max: int = field(20, "Length of a rollout and of a replay sequence, in agent steps", low=1, high=1000)
    replay_size: int = field(2000, "Size of each agent's replay ring, in agent steps", low=1, of=("replay",))
    replay_fill: str = field(
        "sequence",
        "Start of auxiliary learning: sequence (the replay ring holds one sequence) or full (the ring is full)",
        choices=("sequence", "full"),
        of=("processes", "tasks"),
    )


@dataclasses.dataclass(frozen=True)
class Run(Settings):
    """The run: its folder, length, runner and evaluations."""

    logdir: str = field("runs", "Folder of all runs")
    name: str = field("", "Name of this run's folder. If empty, it is made from the environment, tasks and time")
    init: str = field("", "Run or checkpoint file with initial weights. Layers with other shapes do not use them")
    steps: int = field(1_000_000, "Training budget, in agent steps", low=1)
    seed: int = field(1, "Random seed", low=0, high=2**31 - 1)
    runner: str = field(
        "parallel",
        "Runner: parallel (environments in processes on the CPU), serial (everything in one thread, reproducible), "
        "device (environments, network and updates in compiled JAX programs), or cluster (several machines)",
        choices=("parallel", "serial", "device", "cluster"),
    )
    agents: int = field(24, "Number of agents, each with its own environment", low=1, high=2**20)
    memory_limit: int = field(
        AUTO, "Memory limit of a machine, in bytes or as in 2GiB. auto means the cgroup's limit, or else the RAM"
    )
    checkpoint_minutes: float = field(5.0, "Minutes between checkpoints", above=0)
    keep_checkpoints: int = field(3, "Number of newest checkpoints to keep, in addition to the best", low=1)
    metrics_seconds: float = field(10.0, "Seconds between lines of metrics.jsonl", above=0)
    track: str = field("off", "Service that also receives the metrics: wandb, or off", choices=("wandb", "off"))
    eval_steps: int = field(0, "Agent steps between evaluations during training. 0 means none", low=0)
    eval_minutes: float = field(0.0, "Minutes between evaluations during training. 0 means none", low=0)
    eval_episodes: int = field(10, "Number of episodes in each evaluation during training", low=1, of=("evaluations",))


@dataclasses.dataclass(frozen=True)
class Learner(Settings):
    """The network, the objective and the optimizer."""

    backend: str = field("tensorflow", "Keras backend", choices=("tensorflow", "jax"))
    layout: str = field(
        AUTO,
        "Layout of convolutions: nchw, nhwc, or auto (nchw on a GPU only)",
        choices=("nchw", "nhwc", AUTO),
        of=("images",),
    )
    network: str = field(
        AUTO,
        "Network: auto (small for images, mlp for vectors), a name from `gunreal networks`, or module:Class",
    )
    network_args: dict[str, Any] = field({}, "Options of the network, as in width=2")
    objective: str = field("ppo", "Objective: a name from `gunreal objectives` such as a3c, or module:Class")
    objective_args: dict[str, Any] = field({}, "Options of the objective, as in epochs=4,clip=0.2")
    hidden: int = field(256, "Number of units in the last layer of the torso", low=1)
    optimizer: str = field("adam", "Optimizer for all weights", choices=("rmsprop", "adam"))
    learning_rate: float = field(
        AUTO,
        "Learning rate at the start of training. auto means 8e-4 with PPO (less in runs of more than 1M steps, and "
        "2.5e-4 from 10M on), and 5e-4 with A3C, DQN and in device runs",
        low=0,
    )
    learning_rate_end: float = field(0.0, "Learning rate at the end of training. It changes linearly", low=0)
    rms_decay: float = field(0.99, "Decay rate of RMSProp's mean of squared gradients", low=0, below=1, of=("rmsprop",))
    rms_initial: float = field(
        0.0,
        "Initial value of RMSProp's mean of squared gradients. In TensorFlow 1, which the papers used, it is 1",
        low=0,
        of=("rmsprop",),
    )
    beta1: float = field(0.9, "Decay rate of Adam's mean of gradients", low=0, below=1, of=("adam",))
    beta2: float = field(0.999, "Decay rate of Adam's mean of squared gradients", low=0, below=1, of=("adam",))
    epsilon: float = field(1e-5, "Epsilon of the optimizer. RMSProp adds it inside the square root", above=0)
    max_grad_norm: float = field(0.5, "Maximum global norm of the gradients. 0 disables clipping", low=0)
    discount: float = field(0.99, "Discount factor gamma, per agent step", low=0, high=1)
    entropy: float = field(
        AUTO,
        "Weight of the entropy bonus (beta). auto means 0.02 with PPO (less in runs of more than 1M steps, and 0.01 "
        "from 4M on, but not in device runs), and 0.01 with A3C",
        low=0,
    )
    entropy_end: float = field(AUTO, "Entropy weight at the end, reached linearly. auto means no change", low=0)
    reduction: str = field(
        "mean",
        "Reduction of the loss over the agent steps of a batch: mean, or sum (as in GA3C)",
        choices=("mean", "sum"),
    )
    normalize_returns: bool = field(True, "Normalization of returns to mean 0 and standard deviation 1 (PopArt)")
    value_weight: float = field(0.5, "Weight of the value loss 0.5 (R - V)^2", low=0)
    precision: str = field(
        "float32",
        "Precision of convolutions and dense layers: float32 or bfloat16. Weights, losses and optimizer use float32",
        choices=("float32", "bfloat16"),
    )
    threads: int = field(
        AUTO,
        "CPU threads per network operation. auto means all cores with PPO and in serial and device runs, and a quarter "
        "of them otherwise. With JAX, all numbers above 1 mean all cores",
        low=1,
    )


@dataclasses.dataclass(frozen=True)
class Config(Cluster, Device, Threads, Processes, Learner, Run, Tasks, Environment):  # the last base comes first
    """The configuration of a run. Every field is also a command-line flag and a TOML key of the same name.

    Values are converted to the type of their field: `agents=16.0` becomes 16, and a list of tasks becomes a tuple. A
    function or class for `env`, and a class in `tasks`, become "module:name". A value that cannot be converted raises
    `ConfigError`. `gunreal.config.checks.check` checks all other rules. Its `ConfigError` names the fix in one line.

    A field whose default is "auto" has a value of the annotated type in a run, once `gunreal.config.resolve.resolved`
    has chosen it.
    """

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, typed(name, getattr(self, name)))  # past the frozen attributes
        if game := re.fullmatch(r"(?:gunreal[.\w]*:)?gunreal/(\w+-v5)", self.env):
            if self.emulator == "ale":
                raise ConfigError(f"{self.env} is on gunreal's emulator; use --env ALE/{game[1]}, or --emulator own")
            object.__setattr__(self, "env", f"ALE/{game[1]}")
            object.__setattr__(self, "emulator", "own")


class ConfigError(ValueError):
    """An invalid configuration. The message is one line that names the fix, whatever the values that it has."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


FIELDS = {f.name: f for f in dataclasses.fields(Config)}
GROUPS: dict[type[Settings], list[str]] = {
    group: list(group.__annotations__) for group in reversed(Config.__mro__) if group.__base__ is Settings
}
OF = {name: (*group.of, *FIELDS[name].metadata["of"]) for group, names in GROUPS.items() for name in names}
AUTOMATIC = tuple(name for name in FIELDS if FIELDS[name].default == AUTO)
TYPES: dict[str, Any] = typing.get_type_hints(Config)


def is_auto(config: Config, name: str) -> bool:
    """Whether gunreal chooses the value of this field and has not done so yet."""
    return name in AUTOMATIC and getattr(config, name) == AUTO


def check_limits(name: str, value: Any, declared: dataclasses.Field[Any]) -> None:
    """Raises ConfigError if the value of the field or option `name` is not within the limits that are declared."""
    limits = declared.metadata
    if "choices" in limits and value not in limits["choices"]:
        hint = close_match(value, limits["choices"])
        raise ConfigError(f"{name} is {value!r}, but must be one of {', '.join(limits['choices'])}{hint}")
    wanted = [
        (value >= limits["low"], f"at least {limits['low']}") if "low" in limits else None,
        (value > limits["above"], f"above {limits['above']}") if "above" in limits else None,
        (value <= limits["high"], f"at most {limits['high']}") if "high" in limits else None,
        (value < limits["below"], f"below {limits['below']}") if "below" in limits else None,
    ]
    rules = [rule for rule in wanted if rule]
    if not all(holds for holds, _ in rules):
        rule = " and ".join(text for _, text in rules)
        raise ConfigError(f"{name} is {value!r}, but must be {rule} (default {declared.default!r})")


def did_you_mean(*names: str) -> str:
    """The question of all messages that suggest names."""
    return f"did you mean {' or '.join(names)}?"


def close_match(word: str, known: Iterable[str]) -> str:
    """A suggestion for the end of an error message, `; did you mean ...?`, or "" without a close match."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; {did_you_mean(*found)}" if found else ""


def typed(name: str, value: Any) -> Any:
    """Converts `value` to the type of field `name`, as `gunreal.config.values.converted` describes.

    Raises:
      ConfigError: the value has another type.
    """
    automatic = name in AUTOMATIC
    if automatic and isinstance(value, str) and value == AUTO:
        return AUTO
    try:
        return converted(name, TYPES[name], value)
    except ValueError as error:
        raise ConfigError(f"{error}, or {AUTO}" if automatic else str(error)) from error
